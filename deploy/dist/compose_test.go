package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// TestCompose: both Compose files load by the schema, and no container runs as root, writes to
// its own files or takes whatever image is newest.
func TestCompose(t *testing.T) {
	for _, names := range [][]string{{"compose.yaml"}, {"compose.yaml", "compose.postgres.yaml"}} {
		var files []string
		for _, name := range names {
			files = append(files, filepath.Join("../compose", name))
		}
		options, err := cli.NewProjectOptions(files, cli.WithEnv([]string{"TRIPHAMMER_VERSION=v1.2.0"}), cli.WithDefaultProfiles())
		if err != nil {
			t.Fatal(err)
		}
		project, err := options.LoadProject(t.Context())
		if err != nil {
			t.Fatal(names, err)
		}
		if len(project.Services) != len(names) {
			t.Errorf("%v: %d services", names, len(project.Services))
		}
		for name, s := range project.Services {
			_, tag, tagged := strings.Cut(s.Image, ":")
			if !tagged || tag == "latest" || s.User == "" || strings.HasPrefix(s.User, "0") || !s.ReadOnly || len(s.CapDrop) != 1 || s.HealthCheck == nil {
				t.Errorf("%v: %s: image %q, user %q, read only %t, capabilities dropped %v", names, name, s.Image, s.User, s.ReadOnly, s.CapDrop)
			}
			for _, p := range s.Ports {
				if p.HostIP != "127.0.0.1" {
					t.Errorf("%v: %s listens on %q", names, name, p.HostIP)
				}
			}
		}
		server := project.Services["triphammer"]
		if file := server.Environment["TRIPHAMMER_KEY_FILE"]; file == nil || *file != "/run/secrets/sealing-key" || !hasSecret(server, "sealing-key") {
			t.Errorf("%v: the key is not a secret: %v", names, server.Secrets)
		}
		if store, ok := server.Environment["TRIPHAMMER_STORE_FILE"]; ok != (len(names) == 2) || ok && (*store != "/run/secrets/store-url" || !hasSecret(server, "store-url")) {
			t.Errorf("%v: the store's address is not a secret: %v", names, server.Secrets)
		}
	}
}

func hasSecret(s types.ServiceConfig, name string) bool {
	for _, secret := range s.Secrets {
		if secret.Source == name {
			return true
		}
	}
	return false
}

// TestDockerfile: the image of the Dockerfile is what make dist makes, and what the Compose
// file expects.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile("../docker/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"USER " + imageUser + ":" + imageUser, "TRIPHAMMER_DATA=/data", "TRIPHAMMER_LISTEN=0.0.0.0:8787", `ENTRYPOINT ["/usr/bin/triphammer"]`, `CMD ["serve"]`,
		"bubblewrap", "git", "openssh-client", "ca-certificates", "curl", `-t localhost/triphammer:"$VERSION"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the Dockerfile has no %s", want)
		}
	}
}

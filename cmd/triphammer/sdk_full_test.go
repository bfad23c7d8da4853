//go:build full

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSDK: the client package that is published on npm, unmodified, drives a
// running server with its base URL and a key alone (SPEC 9.7).
func TestSDK(t *testing.T) {
	folder := filepath.Join("testdata", "sdk")
	if _, err := os.Stat(filepath.Join(folder, "node_modules", "oz-agent-sdk", "package.json")); err != nil {
		t.Fatalf("the package is not installed (npm ci --prefix cmd/triphammer/%s): %v", folder, err)
	}
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "environments/quick.yaml": "command: ['true']\n", "environments/slow.yaml": "command: [sleep, '600']\n",
	})
	w.start("--max-runs", "4")
	key := strings.TrimSpace(w.run("", "keys", "create", "sdk", "--scope", "runs"))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "drive.mjs")
	cmd.Dir = folder
	cmd.Env = append(environment(w.dir), "OZ_API_BASE_URL=http://"+w.addr+"/api/v1", "WARP_API_KEY="+key)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, &complaints)
	}
	for _, step := range []string{"created", "finished", "listed", "cancelled", "scheduled", "refused"} {
		if !bytes.Contains(out, []byte(`{"step":"`+step+`"`)) {
			t.Errorf("%s did not happen:\n%s", step, out)
		}
	}
}

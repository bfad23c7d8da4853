//go:build full

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"triphammer/server/worker/executor/containertest"
)

// postgresImage stands for the image of PostgreSQL that the Compose file names.
const postgresImage = "localhost/triphammer-test-postgres:1"

// postgresEntry is what that image does at its start, in short.
const postgresEntry = `set -e
export PGDATA=/var/lib/postgresql/data LC_ALL=C PATH=$PATH:$(echo /usr/lib/postgresql/*/bin)
if ! [ -s $PGDATA/PG_VERSION ]; then
  initdb --username=$POSTGRES_USER --pwfile=$POSTGRES_PASSWORD_FILE --auth-host=scram-sha-256 --encoding=UTF8
  echo 'host all all all scram-sha-256' >> $PGDATA/pg_hba.conf
  echo "CREATE DATABASE $POSTGRES_DB" | postgres --single postgres
fi
exec postgres -c listen_addresses='*'
`

func makePostgresImage(t *testing.T) {
	t.Helper()
	if exec.Command("podman", "image", "exists", postgresImage).Run() == nil {
		return
	}
	dir := t.TempDir()
	entry, tree := filepath.Join(dir, "entry"), filepath.Join(dir, "tree.tar")
	if err := os.WriteFile(entry, []byte(postgresEntry), 0o644); err != nil {
		t.Fatal(err)
	}
	argv := []string{
		"--quiet", "--variant=apt", "--include=postgresql", "--customize-hook=upload " + entry + " /entry", "--customize-hook=chmod 644 $1/entry",
		"--customize-hook=chroot $1 usermod --uid 999 postgres", "--customize-hook=chroot $1 groupmod --gid 999 postgres",
		"--customize-hook=chroot $1 install -d -o 999 -g 999 -m 700 /var/lib/postgresql/data", "bookworm", tree,
	}
	succeed(t, exec.Command("mmdebstrap", append(argv, containertest.Mirrors()...)...))
	succeed(t, exec.Command("podman", "import", "--quiet", "--change", `ENTRYPOINT ["/bin/sh","/entry"]`, "--change", "VOLUME /var/lib/postgresql/data", tree, postgresImage))
}

// distCompose walks the guide with the Compose files, which Podman's Compose reads, without
// PostgreSQL and with it.
func distCompose(t *testing.T, root, out, guide string) {
	makePostgresImage(t)
	dir, name := t.TempDir(), fmt.Sprintf("triphammer-compose-%d", os.Getpid())
	// The limits are those of containertest.Options. The containers know each other by name.
	settings := `[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
[network]
network_backend = "netavark"
`
	if err := os.WriteFile(filepath.Join(dir, "containers.conf"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(freeAddress(t), ":")
	begin := strings.NewReplacer("ROOT", root, "OUT", out, "ARCH", runtime.GOARCH, "PORT", port, "NAME", name, "IMAGE", postgresImage).Replace(`set -euxo pipefail
export CONTAINERS_CONF=$PWD/containers.conf
docker() {
  shift
  if [ "$1" = exec ]; then podman exec "NAME_$2_1" "${@:3}"; return; fi # Podman's Compose loses the exit status
  podman-compose -p NAME "$@"
}
sudo() { "$@"; }
VERSION=v1.0.0
cp -r ROOT/deploy .
sed -i 's|127.0.0.1:8787:8787|127.0.0.1:PORT:8787|' deploy/compose/compose.yaml
sed -i 's|image: docker.io/library/postgres:.*|image: IMAGE|' deploy/compose/compose.postgres.yaml
podman load --quiet --input OUT/triphammer-image_v1.0.0_linux_ARCH.tar
`)
	script := begin + guideBlocks(t, guide, "compose") + `
curl -sS --fail http://127.0.0.1:` + port + `/healthz
docker compose down --volumes
` + guideBlocks(t, guide, "compose-postgres") + `
docker compose exec triphammer triphammer keys create ci
docker compose exec postgres psql --host=/var/run/postgresql --username=triphammer --tuples-only --command="SELECT 'KEYS ' || count(*) FROM api_keys"
echo ALL OF IT
`
	t.Cleanup(func() {
		for _, command := range []string{
			"podman logs NAME_triphammer_1", "podman logs NAME_postgres_1", "podman rm --force --time=5 NAME_triphammer_1 NAME_postgres_1",
			"podman volume rm --force NAME_data NAME_postgres", "podman network rm --force NAME_default",
		} {
			cmd := exec.Command("bash", "-c", strings.ReplaceAll(command, "NAME", name))
			cmd.Env = append(os.Environ(), "CONTAINERS_CONF="+filepath.Join(dir, "containers.conf"))
			if said, err := cmd.CombinedOutput(); t.Failed() || err != nil {
				t.Logf("%s: %v\n%s", command, err, said)
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash")
	cmd.Dir, cmd.Stdin, cmd.WaitDelay = dir, strings.NewReader("main() {\n"+script+"}\nmain </dev/null 2>&1\n"), 10*time.Second
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for _, want := range []string{"\nALL OF IT\n", "isolation    kernel", "KEYS 1"} {
		if !strings.Contains(string(said), want) {
			t.Errorf("it does not print %q:\n%s", want, said)
		}
	}
}

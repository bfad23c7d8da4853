//go:build full

package main

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/server/worker/executor/containertest"
)

// TestDist: what make dist makes installs, runs, upgrades and goes, as docs/install.md says
// (SPEC 20.1, 20.2). It is built once for all parts; what is compiled is in the build cache
// after that.
func TestDist(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	makeDist(t, root, "v1.0.0", out)
	makeDist(t, root, "v1.1.0", filepath.Join(out, "newer"), "-images=false", "-arch="+runtime.GOARCH)
	guide, err := os.ReadFile(filepath.Join(root, "docs/install.md"))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("Tools", func(t *testing.T) {
		cmd := exec.Command("go", "test", "-count=1", ".")
		cmd.Dir = filepath.Join(root, "deploy/dist")
		succeed(t, cmd)
	})
	t.Run("Same", func(t *testing.T) { distSame(t, root, out) })
	t.Run("Archive", func(t *testing.T) { distArchive(t, out) })
	t.Run("RPM", func(t *testing.T) { distRPM(t, out) })
	t.Run("Printed", func(t *testing.T) { distPrinted(t, out) })
	t.Run("DNF", func(t *testing.T) { distDNF(t, out, string(guide)) })
	t.Run("Systemd", func(t *testing.T) { distSystemd(t, out, string(guide)) })
	t.Run("Compose", func(t *testing.T) { distCompose(t, root, out, string(guide)) })
	t.Run("Container", func(t *testing.T) { distContainer(t, out, string(guide)) })
}

// distTime is the time of the commit from which these tests seem to build.
const distTime = "1790000000"

func makeDist(t *testing.T, root, version, out string, flags ...string) {
	t.Helper()
	succeed(t, distCommand(root, version, out, flags...))
}

func distCommand(root, version, out string, flags ...string) *exec.Cmd {
	cmd := exec.Command("make", "dist", "VERSION="+version, "DISTFLAGS=-out '"+out+"' "+strings.Join(flags, " "))
	cmd.Dir, cmd.Env = root, append(os.Environ(), "SOURCE_DATE_EPOCH="+distTime)
	return cmd
}

// succeed runs a program that must succeed, and returns all that it prints.
func succeed(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

// distSame: the same files at another path, for a person with other settings, give the same
// bytes.
func distSame(t *testing.T, root, out string) {
	copied, again := filepath.Join(t.TempDir(), "elsewhere", "a clone"), t.TempDir()
	if err := os.MkdirAll(copied, 0o700); err != nil {
		t.Fatal(err)
	}
	// What is there, whether it is committed or not. A file may be removed and that not committed.
	copyTree := exec.Command("bash", "-c", `set -o pipefail; umask 077
git ls-files -z --cached --others --exclude-standard | tar --null --files-from=- --ignore-failed-read --create | tar -C "$1" --no-same-permissions --extract`, "bash", copied)
	copyTree.Dir = root
	succeed(t, copyTree)
	cmd := distCommand(copied, "v1.0.0", again)
	cmd.Env = append(cmd.Env, "TZ=Pacific/Auckland", "LC_ALL=C.UTF-8", "TMPDIR="+t.TempDir())
	succeed(t, cmd)
	made, err := filepath.Glob(filepath.Join(out, "*_*"))
	if err != nil || len(made) != 11 {
		t.Fatalf("%v, %v", made, err)
	}
	for _, name := range append(made, filepath.Join(out, "sha256sums.txt")) {
		if !sameBytes(t, name, filepath.Join(again, filepath.Base(name))) {
			t.Errorf("%s is not the same when it is built elsewhere", filepath.Base(name))
		}
	}
}

func sameBytes(t *testing.T, a, b string) bool {
	t.Helper()
	one, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(one, other)
}

// distArchive: the archives hold a program without dependencies, for both machines, and the
// bill of materials has what is in it. That for the other machine is started by an emulator.
func distArchive(t *testing.T, out string) {
	check := exec.Command("sha256sum", "--check", "--strict", "sha256sums.txt")
	check.Dir = out
	if said := succeed(t, check); strings.Count(said, ": OK") != 11 {
		t.Errorf("the sums are of %s", said)
	}
	var chart bytes.Buffer
	cmd := exec.Command(buildHelm(t), filepath.Join(out, "triphammer-chart_v1.0.0.tgz"), "triphammer")
	cmd.Stdin, cmd.Stdout = strings.NewReader("{}"), &chart
	if err := cmd.Run(); err != nil || strings.Count(chart.String(), `image: "triphammer:v1.0.0"`) != 2 {
		t.Errorf("the chart does not have the images of its version: %v\n%s", err, chart.String())
	}
	emulators := map[string]string{"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static"}
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	dir := t.TempDir()
	for arch, emulator := range emulators {
		name := "triphammer_v1.0.0_linux_" + arch
		succeed(t, exec.Command("tar", "-C", dir, "-xzf", filepath.Join(out, name+".tar.gz")))
		program := filepath.Join(dir, name, "triphammer")
		f, err := elf.Open(program)
		if err != nil {
			t.Fatal(err)
		}
		libraries, err := f.ImportedLibraries()
		if interpreted := slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }); f.Machine != machines[arch] || interpreted || len(libraries) > 0 {
			t.Errorf("%s is for %v, has an interpreter: %t, libraries %v, %v", name, f.Machine, interpreted, libraries, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		argv := []string{emulator, program}
		if arch == runtime.GOARCH {
			argv = argv[1:]
		}
		run := func(args ...string) string {
			cmd := exec.Command(argv[0], slices.Concat(argv[1:], args)...)
			cmd.Dir = dir
			return succeed(t, cmd)
		}
		if said := run("version"); said != "triphammer v1.0.0\n" {
			t.Errorf("%s says %q", name, said)
		}
		run("init", arch, "--yes")
		run("validate", arch)
		run("test", arch)
		for _, file := range []string{"man/triphammer-runs-list.1", "completions/_triphammer", "systemd/triphammer.service", "docs/install.md", "LICENCES-OF-OTHERS.txt"} {
			if info, err := os.Stat(filepath.Join(dir, name, file)); err != nil || info.Size() < 500 {
				t.Errorf("%s: %v, %v", file, info, err)
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(out, "triphammer_v1.0.0_sbom.spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bill struct {
		Packages []struct{ Name, VersionInfo, LicenseDeclared string }
	}
	if err := json.Unmarshal(text, &bill); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"triphammer", "stdlib", "glibc", "sqlite", "github.com/gin-gonic/gin", "golang.org/x/crypto", "third_party/htmx"} {
		if !slices.ContainsFunc(bill.Packages, func(p struct{ Name, VersionInfo, LicenseDeclared string }) bool {
			return p.Name == want && p.VersionInfo != "" && p.LicenseDeclared != ""
		}) {
			t.Errorf("the bill of materials has no %s", want)
		}
	}
}

// distRPM: the RPM packages have the program of the archives, and say what is a setting.
func distRPM(t *testing.T, out string) {
	for arch, machine := range map[string]string{"amd64": "x86_64", "arm64": "aarch64"} {
		dir, file := t.TempDir(), filepath.Join(out, "triphammer_v1.0.0_linux_"+arch+".rpm")
		ask := func(args ...string) string {
			return succeed(t, exec.Command("rpm", append(append([]string{"-q", "--package", "--nosignature"}, args...), file)...))
		}
		if said := ask("--queryformat", "%{NAME} %{VERSION} %{ARCH} %{BUILDTIME}"); said != "triphammer 1.0.0 "+machine+" "+distTime {
			t.Errorf("it is %q", said)
		}
		if said := ask("--configfiles"); said != "/etc/triphammer/config.yaml\n" {
			t.Errorf("its settings are %q", said)
		}
		for _, want := range []string{"git-core", "ca-certificates"} {
			if said := ask("--requires"); !strings.Contains(said, want) {
				t.Errorf("it requires %q", said)
			}
		}
		scripts := ask("--scripts")
		for _, want := range []string{"postinstall scriptlet", "preuninstall scriptlet", "postuninstall scriptlet", "systemd-sysusers triphammer.conf", "try-restart"} {
			if !strings.Contains(scripts, want) {
				t.Errorf("its scripts have no %q:\n%s", want, scripts)
			}
		}
		unpack := exec.Command("sh", "-c", `rpm2cpio "$1" | cpio -id --quiet --no-absolute-filenames`, "sh", file)
		unpack.Dir = dir
		succeed(t, unpack)
		name := "triphammer_v1.0.0_linux_" + arch
		succeed(t, exec.Command("tar", "-C", dir, "-xzf", filepath.Join(out, name+".tar.gz")))
		if !sameBytes(t, filepath.Join(dir, "usr/bin/triphammer"), filepath.Join(dir, name, "triphammer")) {
			t.Errorf("the program for %s is not that of the archive", arch)
		}
		for _, file := range []string{"usr/lib/systemd/system/triphammer.service", "usr/share/man/man1/triphammer.1.gz", "usr/share/zsh/site-functions/_triphammer"} {
			if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
				t.Error(err)
			}
		}
	}
}

// distPrinted: the packages have the manual pages and completions that the program prints, and
// no others.
func distPrinted(t *testing.T, out string) {
	dir, name := t.TempDir(), "triphammer_v1.0.0_linux_"+runtime.GOARCH
	succeed(t, exec.Command("tar", "-C", dir, "-xzf", filepath.Join(out, name+".tar.gz")))
	program := filepath.Join(dir, name, "triphammer")
	seconds, err := strconv.ParseInt(distTime, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	succeed(t, exec.Command(program, "man", filepath.Join(dir, "man"), "--date", time.Unix(seconds, 0).UTC().Format(time.DateOnly)))
	pages, err := os.ReadDir(filepath.Join(dir, "man"))
	if err != nil || len(pages) < 50 {
		t.Fatalf("%d manual pages, %v", len(pages), err)
	}
	for kind, unpack := range map[string]string{".deb": `dpkg-deb -x "$1" .`, ".rpm": `rpm2cpio "$1" | cpio -id --quiet --no-absolute-filenames`} {
		for _, arch := range []string{"amd64", "arm64"} {
			at, zsh := t.TempDir(), "zsh/vendor-completions/_triphammer"
			if kind == ".rpm" {
				zsh = "zsh/site-functions/_triphammer"
			}
			files := exec.Command("sh", "-c", unpack+`; gzip -d usr/share/man/man1/*.gz`, "sh", filepath.Join(out, "triphammer_v1.0.0_linux_"+arch+kind))
			files.Dir = at
			succeed(t, files)
			succeed(t, exec.Command("diff", "-r", filepath.Join(dir, "man"), filepath.Join(at, "usr/share/man/man1")))
			for shell, file := range map[string]string{"bash": "bash-completion/completions/triphammer", "zsh": zsh, "fish": "fish/vendor_completions.d/triphammer.fish"} {
				has, err := os.ReadFile(filepath.Join(at, "usr/share", file))
				if printed := succeed(t, exec.Command(program, "completion", shell)); err != nil || strings.TrimSpace(string(has)) != strings.TrimSpace(printed) {
					t.Errorf("%s for %s: the completion of %s is not what the program prints, %v", kind, arch, shell, err)
				}
			}
		}
	}
}

// distDNF installs the RPM package by the guide into a tree of Debian, upgrades and removes it.
// What the package requires is in that tree, but no package of RPM: one without files says so.
func distDNF(t *testing.T, out, guide string) {
	makeSystemdImage(t)
	cmd := exec.Command("bash", "-c", strings.NewReplacer("OUT", out, "IMAGE", systemdImage, "MACHINE", runtime.GOARCH).Replace(`set -euxo pipefail
root=$PWD/root VERSION=v1.0.0 ARCH=MACHINE
mkdir root
made=$(podman create IMAGE /bin/true)
podman export "$made" | tar -xC root
podman rm "$made"
cat >debian.spec <<'END'
Name: debian
Version: 1
Release: 1
Summary: What the tree has
License: none
BuildArch: noarch
Provides: git-core, ca-certificates, /usr/sbin/useradd, /bin/sh
%description
What the tree has.
%files
END
rpmbuild --quiet --define "_topdir $PWD" -bb debian.spec
sudo() { "$@"; }
dnf() { command dnf --assumeyes --installroot="$root" --releasever=1 --disablerepo='*' --nogpgcheck "$@"; }
dnf install RPMS/noarch/debian-1-1.noarch.rpm
cd OUT
`)+guideBlocks(t, guide, "dnf")+`
[ "$(chroot "$root" triphammer version)" = 'triphammer v1.0.0' ]
[ "$(chroot "$root" stat --format='%a %U %G' /etc/triphammer/config.yaml)" = '640 root triphammer' ]
[ "$(chroot "$root" stat --format='%a %U %G' /var/lib/triphammer)" = '700 triphammer triphammer' ]
sed -i 's/^# max-runs: 4$/max-runs: 3/' "$root/etc/triphammer/config.yaml"
touch "$root/var/lib/triphammer/mine"
cd newer
VERSION=v1.1.0
`+guideBlocks(t, guide, "dnf")+`
[ "$(chroot "$root" triphammer version)" = 'triphammer v1.1.0' ]
grep '^max-runs: 3$' "$root/etc/triphammer/config.yaml"
dnf remove triphammer
[ ! -e "$root/usr/bin/triphammer" ]
[ -e "$root/var/lib/triphammer/mine" ]
`)
	cmd.Dir = t.TempDir()
	succeed(t, cmd)
}

// guideBlocks are the commands of a guide from one heading to another, or those with a mark.
func guideBlocks(t *testing.T, guide, mark string) string {
	t.Helper()
	from, to, between := strings.Cut(mark, "…")
	pattern := "(?s)```sh " + regexp.QuoteMeta(mark) + "\n(.*?)```"
	if between {
		guide = "\n" + guide
		begin, end := strings.Index(guide, "\n"+from+"\n"), strings.Index(guide, "\n"+to+"\n")
		if begin < 0 || end < begin {
			t.Fatalf("the guide has no part from %s to %s", from, to)
		}
		guide, pattern = guide[begin:end], "(?s)```sh\n(.*?)```"
	}
	var all []string
	for _, block := range regexp.MustCompile(pattern).FindAllStringSubmatch(guide, -1) {
		all = append(all, block[1])
	}
	if len(all) == 0 {
		t.Fatalf("the guide has no commands for %s", mark)
	}
	return strings.Join(all, "")
}

// systemdImage is a minimal Debian that systemd starts.
const systemdImage = "localhost/triphammer-test-systemd:1"

func makeSystemdImage(t *testing.T) {
	t.Helper()
	if exec.Command("podman", "image", "exists", systemdImage).Run() == nil {
		return
	}
	tree := filepath.Join(t.TempDir(), "tree.tar")
	argv := []string{"--quiet", "--variant=apt", "--include=git,ca-certificates,systemd,bubblewrap,sudo,openssl", "bookworm", tree}
	succeed(t, exec.Command("mmdebstrap", append(argv, containertest.Mirrors()...)...))
	succeed(t, exec.Command("podman", "import", "--quiet", tree, systemdImage))
}

// distSystemd installs the Debian package where systemd is in charge, and walks the guide in
// the words of the guide: a first run, its settings, the upgrade, the removal.
func distSystemd(t *testing.T, out, guide string) {
	makeSystemdImage(t)
	name := fmt.Sprintf("triphammer-dist-%d", os.Getpid())
	argv := append([]string{"run", "--detach", "--name=" + name, "--systemd=always", "--privileged", "--network=none", "--volume=" + out + ":/dist:ro"},
		strings.Fields(containertest.Options)...)
	succeed(t, exec.Command("podman", append(argv, systemdImage, "/lib/systemd/systemd")...))
	t.Cleanup(func() { succeed(t, exec.Command("podman", "rm", "--force", "--time=0", name)) })
	booted := client.WaitFor(t.Context(), time.Minute, "systemd has not started", func() (bool, error) {
		said, _ := exec.Command("podman", "exec", name, "systemctl", "is-system-running", "--wait").Output()
		return strings.TrimSpace(string(said)) == "running" || strings.TrimSpace(string(said)) == "degraded", nil
	})
	if booted != nil {
		t.Fatal(booted)
	}
	first := guideBlocks(t, guide, "first")
	steps := strings.Count(first, "\n")
	script := strings.Join([]string{
		`set -euxo pipefail
not() { if "$@"; then echo "this succeeds: $*"; exit 1; fi; }
as() { sudo -u triphammer triphammer "$@"; }
ended() { as runs watch "$(as runs list -o name --limit 1)" --timeout 60s | tail -1 | grep '^SUCCEEDED$'; }
mount --make-rshared / # as it is on a machine: systemd hands out credentials by it
cp -r /dist /opt/dist && cd /opt/dist && mv newer/*.deb .
`, strings.ReplaceAll(guideBlocks(t, guide, "# Installing…## Debian and Ubuntu"), "amd64", runtime.GOARCH),
		guideBlocks(t, guide, "## Debian and Ubuntu…## Fedora and others with RPM"), `
# It waits for somebody to start it, and only its user and root see what is in its folders.
not systemctl is-active --quiet triphammer
not systemctl is-enabled --quiet triphammer
[ "$(stat --format='%a %U %G' /etc/triphammer/config.yaml)" = '640 root triphammer' ]
[ "$(stat --format='%a %U %G' /var/lib/triphammer)" = '700 triphammer triphammer' ]
[ -z "$(systemd-analyze verify --man=no triphammer.service 2>&1)" ]
systemd-analyze security --offline=true --threshold=35 --no-pager triphammer.service >/tmp/security || { cat /tmp/security; false; }
tail -1 /tmp/security
begin=$(date +%s%N)
`, first, `ended
echo "FIRST RUN: $(( ($(date +%s%N) - begin) / 1000000 )) ms"
# Nothing of the unit is in the way of the strongest walls.
as status | grep '^isolation *sandbox$'
journalctl --unit=triphammer --no-pager | grep 'walls are put around the runs.*isolation=sandbox'
`, guideBlocks(t, guide, "## To a first run…## Where things lie"), `ended
sed -i 's/^# max-runs: 4$/max-runs: 3/' /etc/triphammer/config.yaml
`, guideBlocks(t, guide, "## Where things lie…## Upgrade"), `
as config show --config /etc/triphammer/config.yaml | grep '^max-runs .* 3 .*/etc/triphammer/config.yaml$'
# With the key elsewhere the secrets are open to the server as before.
[ ! -e /var/lib/triphammer/key ]
triphammer send --url "$(as webhooks url hello)" --scheme github --secret-file secret --payload '{"name": "Lin"}'
ended
# A key that root hands to the server's group is taken, and one that all can read is not.
systemctl stop triphammer
install -m 0440 -g triphammer /etc/triphammer/sealing-key /etc/triphammer/handed
install -m 0444 -g triphammer /etc/triphammer/sealing-key /etc/triphammer/open
chmod 0755 /etc/triphammer
[ "$(sudo -u triphammer TRIPHAMMER_KEY_FILE=/etc/triphammer/handed triphammer runs list -o name | wc -l)" = 3 ]
not sudo -u triphammer TRIPHAMMER_KEY_FILE=/etc/triphammer/open triphammer runs list
systemctl start triphammer
(cat /etc/triphammer/config.yaml; echo 'max-rusn: 3') >/tmp/wrong.yaml
not triphammer config show --config /tmp/wrong.yaml 2>/tmp/said
grep '^triphammer: /tmp/wrong.yaml:[0-9]*:1: unknown key "max-rusn" did you mean "max-runs"?' /tmp/said
runs=$(as runs list -o name | wc -l)
before=$(systemctl show --property=MainPID --value triphammer)
NEWER=v1.1.0
`, guideBlocks(t, guide, "upgrade"), `
[ "$(triphammer version)" = 'triphammer v1.1.0' ]
systemctl is-active triphammer
[ "$(systemctl show --property=MainPID --value triphammer)" != "$before" ]
grep '^max-runs: 3$' /etc/triphammer/config.yaml
[ "$(as runs list -o name | wc -l)" = "$runs" ]
triphammer send --url "$(as webhooks url hello)" --scheme github --secret-file secret --payload '{"name": "Mary"}'
ended
# Settings that somebody took away stay away, and the package is installed all the same.
systemctl stop triphammer
mv /etc/triphammer/config.yaml /tmp/config.yaml
dpkg --install ./triphammer_${NEWER}_linux_${ARCH}.deb
[ ! -e /etc/triphammer/config.yaml ]
mv /tmp/config.yaml /etc/triphammer/config.yaml
systemctl start triphammer
`, guideBlocks(t, guide, "remove"), `
not systemctl is-active --quiet triphammer
[ ! -e /usr/bin/triphammer ]
[ -s /var/lib/triphammer/triphammer.db ] && [ -e /etc/triphammer/config.yaml ]
`, guideBlocks(t, guide, "purge"), `
[ ! -e /var/lib/triphammer ] && [ ! -e /etc/triphammer ]
not getent passwd triphammer
hash -r # this shell has run the one that is gone
`, guideBlocks(t, guide, "archive"), "echo ALL OF IT\n",
	}, "")
	said := inContainer(t, name, script)
	if !strings.Contains(said, "\nALL OF IT\n") {
		t.Fatalf("the script has not come to its end:\n%s", said)
	}
	t.Logf("%s", regexp.MustCompile(`(?m)^.*exposure level.*`).FindString(said))
	var took int
	_, err := fmt.Sscanf(said[strings.LastIndex(said, "\nFIRST RUN: "):], "\nFIRST RUN: %d ms", &took)
	t.Logf("from the installed package to the end of the first run: %d commands, %d ms", steps, took)
	if err != nil || steps > 6 || took > 60_000 {
		t.Errorf("the first run takes %d commands and %d ms, %v", steps, took, err)
	}
}

func inContainer(t *testing.T, name, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "podman", "exec", "--interactive", name, "bash")
	cmd.Stdin = strings.NewReader("main() {\n" + script + "}\nmain </dev/null 2>&1\n") // read whole before it begins
	out, err := cmd.CombinedOutput()
	if err != nil {
		log, _ := exec.Command("podman", "exec", name, "journalctl", "--no-pager", "--lines=50").CombinedOutput()
		t.Fatalf("%v\n%s\n%s", err, out, log)
	}
	return string(out)
}

// distContainer loads the image, and walks the guide: the server is not root and cannot write
// to its own files.
func distContainer(t *testing.T, out, guide string) {
	name := fmt.Sprintf("triphammer-image-%d", os.Getpid())
	script := strings.NewReplacer(
		"podman run ", "podman run --network=none "+containertest.Options+" ", "--publish=127.0.0.1:8787:8787 ", "", "--name=triphammer", "--name="+name,
		"podman exec triphammer ", "podman exec "+name+" ", "triphammer-data:", name+":",
	).Replace(guideBlocks(t, guide, "container"))
	script = "set -euxo pipefail\nVERSION=v1.0.0 ARCH=" + runtime.GOARCH + "\n" + script + strings.ReplaceAll(`
podman exec NAME triphammer runs watch "$(podman exec NAME triphammer runs list -o name)" --timeout 60s | tail -1 | grep '^SUCCEEDED$'
podman exec NAME triphammer status
podman exec NAME sh -c 'echo "user $(id -u)"; touch /usr/bin/mine 2>&1 && exit 1; bwrap --version; git ls-remote https://none.invalid 2>&1 | tail -1'
podman restart NAME >/dev/null
until podman exec NAME curl --fail --silent http://127.0.0.1:8787/healthz; do sleep 1; done
podman exec NAME triphammer runs list | grep SUCCEEDED
`, "NAME", name)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash")
	cmd.Dir, cmd.Stdin = out, strings.NewReader(script)
	t.Cleanup(func() {
		_ = exec.Command("podman", "rm", "--force", "--volumes", "--time=5", name).Run() // the test may have ended before it was made
		_ = exec.Command("podman", "volume", "rm", "--force", name).Run()
		_ = exec.Command("podman", "rmi", "--force", "localhost/triphammer:v1.0.0").Run()
	})
	said, err := cmd.CombinedOutput()
	if err != nil {
		log, _ := exec.Command("podman", "logs", name).CombinedOutput()
		t.Fatalf("%v\n%s\n%s", err, said, log)
	}
	for _, want := range []string{"user 10001\n", "Read-only file system", "bubblewrap ", "isolation    kernel"} {
		if !strings.Contains(string(said), want) {
			t.Errorf("it does not print %q:\n%s", want, said)
		}
	}
	// The image for the other machine says so, and holds its program.
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	index := exec.Command("tar", "-xOf", filepath.Join(out, "triphammer-image_v1.0.0_linux_"+other+".tar"), "index.json")
	text, err := index.Output()
	if err != nil || !strings.Contains(string(text), `"architecture":"`+other+`"`) && !strings.Contains(string(text), `"architecture": "`+other+`"`) {
		t.Errorf("%v: %s", err, text)
	}
}

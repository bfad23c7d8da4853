package sandbox

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// An image that lacks git or the program of the agent gets those of this machine, read-only, at
// the end of its PATH, so that its own win.
//
// git comes with the C library and the loader of this machine, which scripts call, so it starts in
// images with any C library or none; /bin/sh has to be there. The program of an agent comes if it
// is a single file that needs nothing, or no more than the GNU C library that is needed for this
// program anyway.

// tools is a folder for containers, at the same path outside and inside; empty: there is none.
type tools string

func (t tools) bin() string    { return filepath.Join(string(t), "bin") }    // git
func (t tools) agents() string { return filepath.Join(string(t), "agents") } // where the program of an agent is mounted

// path are the folders of programs.
func (t tools) path() string { return t.bin() + string(filepath.ListSeparator) + t.agents() }

// toolsFolder is the name of the folder, in that of the runs.
const toolsFolder = "/.tools"

// after adds the folders to the end of the PATH of env.
func (t tools) after(env []string) []string {
	for i, v := range env {
		if t != "" && strings.HasPrefix(v, "PATH=") {
			env[i] = v + string(filepath.ListSeparator) + t.path()
		}
	}
	return env
}

// authorities are where systems keep the certificates of authorities, which the library of git
// knows for its own system alone.
var authorities = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem",
}

// gitHelpers are the programs that git starts by their names, and the files that they are.
var gitHelpers = map[string]string{
	"git": "git", "git-upload-pack": "git", "git-receive-pack": "git", "git-upload-archive": "git",
	"git-remote-http": "git-remote-http", "git-remote-https": "git-remote-http", "git-sh-i18n--envsubst": "git-sh-i18n--envsubst",
}

// gitScripts are those of git that need no more than a shell.
var gitScripts = []string{"git-submodule", "git-sh-setup", "git-sh-i18n", "git-merge-one-file", "git-merge-octopus", "git-merge-resolve"}

// makeTools makes the folder anew with the git of searched, a PATH. Without git, the folder has
// none.
func makeTools(dir, searched string) (tools, error) {
	t := tools(dir + toolsFolder)
	err := removeAll(string(t))
	for _, made := range []string{string(t), t.bin(), t.agents(), filepath.Join(string(t), "core"), filepath.Join(string(t), "lib")} {
		if err == nil {
			err = os.Mkdir(made, 0o755)
		}
		if err == nil {
			err = os.Chmod(made, 0o755)
		}
	}
	git := find("git", "/", []string{"PATH=" + searched})
	if err != nil || git == "" {
		return t, err
	}
	core, err := exec.Command(git, "--exec-path").Output()
	if err != nil {
		return t, fmt.Errorf("asking git for its programs: %w", err)
	}
	from := strings.TrimSpace(string(core))
	for name, file := range gitHelpers {
		original := filepath.Join(from, file)
		if file == "git" {
			original = git
		}
		loader, err := t.take(original)
		if err == nil {
			err = t.script(filepath.Join("core", name), name, file, loader)
		}
		if err == nil && name == "git" {
			err = t.script(filepath.Join("bin", name), name, file, loader)
		}
		if err != nil && file == "git" {
			return t, err
		} // else this git has no such helper
	}
	for _, name := range gitScripts {
		_ = copyTool(filepath.Join(from, name), filepath.Join(string(t), "core", name))
	}
	for _, file := range authorities {
		if copyTool(file, t.authorities()) == nil {
			break
		}
	}
	return t, nil
}

func (t tools) authorities() string { return filepath.Join(string(t), "authorities.crt") }

// take copies a program and its libraries. loader is the name of the copy of what loads them;
// empty: the program needs none.
func (t tools) take(program string) (loader string, err error) {
	lib := filepath.Join(string(t), "lib")
	if err := copyTool(program, filepath.Join(lib, filepath.Base(program)+".bin")); err != nil {
		return "", err
	}
	n, err := needsOf(program)
	if err != nil || n.loader == "" {
		return "", err
	}
	list, err := exec.Command(n.loader, "--list", program).Output()
	if err != nil {
		return "", fmt.Errorf("listing the libraries of %s: %w", program, err)
	}
	for _, line := range regexp.MustCompile(`(\S+) => (/.*) \(0x`).FindAllSubmatch(list, -1) {
		name, file := string(line[1]), string(line[2])
		if err := copyTool(file, filepath.Join(lib, path.Base(name))); err != nil {
			return "", err
		}
	}
	loader = filepath.Base(n.loader)
	return loader, copyTool(n.loader, filepath.Join(lib, loader))
}

// script writes a script that starts a copy under its name.
func (t tools) script(at, name, file, loader string) error {
	var b bytes.Buffer
	in := func(names ...string) string {
		return shellQuoted(filepath.Join(append([]string{string(t)}, names...)...))
	}
	fmt.Fprintf(&b, "#!/bin/sh\nexport GIT_EXEC_PATH=%s GIT_TEMPLATE_DIR=\"${GIT_TEMPLATE_DIR-}\"\n", in("core"))
	fmt.Fprintf(&b, "if [ -z \"$GIT_SSL_CAINFO\" ]; then for f in %s %s; do [ -e \"$f\" ] && export GIT_SSL_CAINFO=\"$f\" && break; done; fi\n",
		strings.Join(authorities, " "), shellQuoted(t.authorities()))
	if loader == "" {
		fmt.Fprintf(&b, "exec %s \"$@\"\n", in("lib", file+".bin")) // which then has one name
	} else {
		fmt.Fprintf(&b, "exec %s --library-path %s --argv0 %s %s \"$@\"\n", in("lib", loader), in("lib"), name, in("lib", file+".bin"))
	}
	if err := os.WriteFile(filepath.Join(string(t), at), b.Bytes(), 0o755); err != nil {
		return err
	}
	return os.Chmod(filepath.Join(string(t), at), 0o755)
}

// shellQuoted is a word of a shell.
func shellQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func copyTool(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.WriteFile(to, data, 0o755); err != nil {
		return err
	}
	return os.Chmod(to, 0o755)
}

// needs is what a program needs of the system in which it starts.
type needs struct {
	loader    string   // empty: nothing
	libraries []string // names
	glibc     int      // the minor number of the newest version of the GNU C library 2 that it names
}

// needsOf reads a program of the kind that this machine executes.
func needsOf(program string) (n needs, err error) {
	f, err := elf.Open(program)
	if err != nil {
		return n, err
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP && p.Filesz < 4096 {
			text := make([]byte, p.Filesz)
			if _, err := p.ReadAt(text, 0); err != nil {
				return n, err
			}
			n.loader = string(bytes.TrimRight(text, "\x00"))
		}
	}
	if n.loader == "" {
		return n, nil
	}
	if n.libraries, err = f.ImportedLibraries(); err != nil {
		return n, err
	}
	symbols, err := f.ImportedSymbols()
	for _, s := range symbols {
		if minor, is := strings.CutPrefix(s.Version, "GLIBC_2."); is {
			number, _, _ := strings.Cut(minor, ".")
			if v, err := strconv.Atoi(number); err == nil {
				n.glibc = max(n.glibc, v)
			}
		}
	}
	return n, err
}

// cLibrary matches the parts of the GNU C library, and its loader.
var cLibrary = regexp.MustCompile(`^(lib(c|m|dl|rt|pthread|util|resolv)\.so\.[0-9]+|ld-linux.*\.so\.[0-9]+)$`)

// portable tells whether a program of this machine starts in every image with the GNU C library
// that this program needs.
func portable(program string) bool {
	n, err := needsOf(program)
	most, _ := strconv.Atoi(strings.TrimPrefix(glibc, "2."))
	return err == nil && n.glibc <= most && !slices.ContainsFunc(n.libraries, func(l string) bool { return !cLibrary.MatchString(l) })
}

// starts tells whether what loads a program is there.
func starts(program string) bool {
	n, err := needsOf(program)
	return err == nil && (n.loader == "" || executable(n.loader))
}

// brought are the options of an engine that bring the tools into a container, with those of the
// programs that can be: by the names of their files here.
func (e *Executor) brought(programs ...string) (options []string) {
	if e.tools == "" {
		return nil
	}
	options = append(options, bind(string(e.tools), ",readonly"))
	for _, name := range programs {
		if from := e.portable(name); from != "" {
			options = append(options, fmt.Sprintf("--mount=type=bind,source=%s,target=%s,readonly", from, filepath.Join(e.tools.agents(), name)))
		}
	}
	return options
}

// portable is the file of a program of this machine that can be brought into containers, with a
// place to mount it at; empty: it cannot.
func (e *Executor) portable(name string) string {
	if name == "" || e.tools == "" || filepath.Base(name) != name || strings.Contains(name, ",") {
		return ""
	}
	from, err := filepath.EvalSymlinks(cmp.Or(find(name, "/", []string{"PATH=" + e.path}), "/nonexistent"))
	if err != nil || strings.Contains(from, ",") || from == self || !slices.Equal(e.without(from), []string{from}) || !portable(from) {
		return ""
	}
	place, err := os.OpenFile(filepath.Join(e.tools.agents(), name), os.O_CREATE|os.O_WRONLY, 0o444) // not to be executed
	if err != nil {
		return ""
	}
	_ = place.Close()
	return from
}

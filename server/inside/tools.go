package inside

import (
	"bytes"
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// An image that lacks git or the program of the agent gets this machine's, read-only, at the end of
// its PATH. So the image's own programs win.
//
// git comes with the C library and the loader of this machine. Scripts call the loader, so git starts
// in images with any C library or none; only /bin/sh must be there. The program of an agent comes if
// it is a single file that needs only the C and C++ libraries, or a package of npm, which gets node
// too. A missing loader and missing libraries are mounted at their paths on this machine, because a
// program that a script starts through the loader would take the loader for itself.

// Tools is a folder for containers, at the same path outside and inside; empty: there is none.
type Tools string

// Bin is the folder with git.
func (t Tools) Bin() string { return filepath.Join(string(t), "bin") }

// Agents is the folder in which the program of an agent is mounted.
func (t Tools) Agents() string { return filepath.Join(string(t), "agents") }

// Lib is the folder with the loader and the libraries.
func (t Tools) Lib() string { return filepath.Join(string(t), "lib") }

func (t Tools) path() string { return t.Bin() + string(filepath.ListSeparator) + t.Agents() }

// toolsFolder is the name of the folder, in the folder of the runs.
const toolsFolder = "/.tools"

// after adds the folders to the end of the PATH of env.
func (t Tools) after(env []string) []string {
	for i, v := range env {
		if t != "" && strings.HasPrefix(v, "PATH=") {
			env[i] = v + string(filepath.ListSeparator) + t.path()
		}
	}
	return env
}

// authorities are the places of the certificates of authorities on different systems. The library
// of git knows only the place on its own system.
var authorities = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem",
}

// gitHelpers are the programs that git starts by name, with their files.
var gitHelpers = map[string]string{
	"git": "git", "git-upload-pack": "git", "git-receive-pack": "git", "git-upload-archive": "git",
	"git-remote-http": "git-remote-http", "git-remote-https": "git-remote-http", "git-sh-i18n--envsubst": "git-sh-i18n--envsubst",
}

// gitScripts are git's scripts that need only a shell.
var gitScripts = []string{"git-submodule", "git-sh-setup", "git-sh-i18n", "git-merge-one-file", "git-merge-octopus", "git-merge-resolve"}

// MakeTools makes the folder anew with the git of searched, a PATH. If there is no git, the folder
// has none.
func MakeTools(dir, searched string) (Tools, error) {
	t := Tools(dir + toolsFolder)
	err := RemoveAll(string(t))
	for _, made := range []string{string(t), t.Bin(), t.Agents(), filepath.Join(string(t), "core"), t.Lib()} {
		if err == nil {
			err = os.Mkdir(made, 0o755)
		}
		if err == nil {
			err = os.Chmod(made, 0o755)
		}
	}
	if err != nil {
		return t, err
	}
	for _, file := range CLibrary() {
		if err := CopyTool(file, filepath.Join(t.Lib(), filepath.Base(file))); err != nil {
			return t, err
		}
	}
	git := find("git", "/", []string{"PATH=" + searched})
	if git == "" {
		return t, nil
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
		_ = CopyTool(filepath.Join(from, name), filepath.Join(string(t), "core", name))
	}
	for _, file := range authorities {
		if CopyTool(file, t.authorities()) == nil {
			break
		}
	}
	return t, nil
}

func (t Tools) authorities() string { return filepath.Join(string(t), "authorities.crt") }

// take copies a program and its libraries. loader is the name of the loader's copy; empty: the
// program needs no loader.
func (t Tools) take(program string) (loader string, err error) {
	if err := CopyTool(program, filepath.Join(t.Lib(), filepath.Base(program)+".bin")); err != nil {
		return "", err
	}
	n, err := NeedsOf(program)
	if err != nil || n.Loader == "" {
		return "", err
	}
	files, err := libraries(n.Loader, program)
	if err != nil {
		return "", err
	}
	for name, file := range files {
		if err := CopyTool(file, filepath.Join(t.Lib(), path.Base(name))); err != nil {
			return "", err
		}
	}
	loader = filepath.Base(n.Loader)
	return loader, CopyTool(n.Loader, filepath.Join(t.Lib(), loader))
}

// libraries are the files of the libraries of a program, by their names.
func libraries(loader, program string) (map[string]string, error) {
	list, err := exec.Command(loader, "--list", program).Output()
	if err != nil {
		return nil, fmt.Errorf("listing the libraries of %s: %w", program, err)
	}
	all := make(map[string]string)
	for _, line := range regexp.MustCompile(`(\S+) => (/.*) \(0x`).FindAllSubmatch(list, -1) {
		all[string(line[1])] = string(line[2])
	}
	return all, nil
}

// CLibrary are the paths of this machine's loader, which is first, and of the parts of its C and
// C++ libraries, as programs look for them.
func CLibrary() (files []string) {
	const sh = "/bin/sh"
	n, err := NeedsOf(sh)
	if err != nil || n.Loader == "" {
		return nil
	}
	files = []string{n.Loader}
	found, _ := libraries(n.Loader, sh)
	dir := filepath.Dir(found["libc.so.6"]) // there is none without the GNU C library
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if name := entry.Name(); portableLibrary.MatchString(name) && name != filepath.Base(n.Loader) {
			files = append(files, filepath.Join(dir, name))
		}
	}
	return files
}

// script writes a script that starts a copy under its name.
func (t Tools) script(at, name, file, loader string) error {
	var b bytes.Buffer
	in := func(names ...string) string {
		return shellQuoted(filepath.Join(append([]string{string(t)}, names...)...))
	}
	fmt.Fprintf(&b, "#!/bin/sh\nexport GIT_EXEC_PATH=%s GIT_TEMPLATE_DIR=\"${GIT_TEMPLATE_DIR-}\"\n", in("core"))
	fmt.Fprintf(&b, "if [ -z \"$GIT_SSL_CAINFO\" ]; then for f in %s %s; do [ -e \"$f\" ] && export GIT_SSL_CAINFO=\"$f\" && break; done; fi\n",
		strings.Join(authorities, " "), shellQuoted(t.authorities()))
	if loader == "" {
		fmt.Fprintf(&b, "exec %s \"$@\"\n", in("lib", file+".bin")) // for a program that need not know its name
	} else {
		fmt.Fprintf(&b, "exec %s --library-path %s --argv0 %s %s \"$@\"\n", in("lib", loader), in("lib"), name, in("lib", file+".bin"))
	}
	if err := os.WriteFile(filepath.Join(string(t), at), b.Bytes(), 0o755); err != nil {
		return err
	}
	return os.Chmod(filepath.Join(string(t), at), 0o755)
}

func shellQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// CopyTool copies a program, and replaces an existing file.
func CopyTool(from, to string) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // only read
	w, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Chmod(0o755), w.Close()) // where any user can execute it
}

// needs is what a program needs of the system on which it starts.
type needs struct {
	Loader    string   // empty: the program needs no loader
	libraries []string // names
	glibc     int      // minor number of the newest version of the GNU C library 2 that the program names
}

// NeedsOf reads a program of the kind that this machine executes.
func NeedsOf(program string) (n needs, err error) {
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
			n.Loader = string(bytes.TrimRight(text, "\x00"))
		}
	}
	if n.Loader == "" {
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

// portableLibrary matches the parts of the GNU C library, its loader, and the C++ library.
var portableLibrary = regexp.MustCompile(`^(lib(c|m|dl|rt|pthread|util|resolv|stdc\+\+|gcc_s)\.so\.[0-9]+|ld-linux.*\.so\.[0-9]+)$`)

// portable tells whether a program of this machine starts in every image that has the C++ library
// and the C library that Triphammer needs.
func portable(program string) bool {
	n, err := NeedsOf(program)
	most, _ := strconv.Atoi(strings.TrimPrefix(Glibc, "2."))
	return err == nil && n.glibc <= most && !slices.ContainsFunc(n.libraries, func(l string) bool { return !portableLibrary.MatchString(l) })
}

// starts tells whether a program of the folder has here what it needs: its loader and libraries, or
// the interpreter of its first line.
func starts(program string, env []string) bool {
	n, err := NeedsOf(program)
	if err != nil {
		by := Interpreter(program)
		return by != "" && find(by, "/", env) != ""
	}
	return n.Loader == "" || Executable(n.Loader) && !slices.ContainsFunc(n.libraries, func(name string) bool { return !hasLibrary(name) })
}

// hasLibrary tells whether a library or a loader is in a usual folder for libraries.
func hasLibrary(name string) bool {
	return slices.ContainsFunc([]string{"/lib*/", "/lib/*-linux-gnu*/", "/usr/lib*/", "/usr/lib/*-linux-gnu*/"}, func(folder string) bool {
		found, _ := filepath.Glob(folder + name) // the pattern is one
		return len(found) > 0
	})
}

// Interpreter is the program that the first line of a script names; empty: it names none.
func Interpreter(script string) string {
	f, err := os.Open(script)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // only read
	first := make([]byte, 128)
	n, _ := io.ReadFull(f, first)
	line, _, _ := strings.Cut(string(first[:n]), "\n")
	words := strings.Fields(strings.TrimPrefix(line, "#!"))
	if !strings.HasPrefix(line, "#!") || len(words) == 0 {
		return ""
	}
	if words = slices.DeleteFunc(words, func(w string) bool { return w == "/usr/bin/env" || w == "-S" }); len(words) == 0 {
		return ""
	}
	return words[0]
}

// Movable finds a program of searched, a PATH, that starts elsewhere too. from is its file, and
// whole is what has to be copied: the file, or the packages of npm around it. Both are empty if
// there is no such program.
func Movable(name, searched string) (from, whole string) {
	if name == "" || filepath.Base(name) != name {
		return "", ""
	}
	from, err := filepath.EvalSymlinks(cmp.Or(find(name, "/", []string{"PATH=" + searched}), "/nonexistent"))
	switch {
	case err != nil || from == Self:
		return "", ""
	case portable(from):
		return from, from
	case Interpreter(from) == "node" && filepath.Base(FolderOf(from)) == "node_modules":
		if node, _ := Movable("node", searched); node != "" {
			return from, FolderOf(from)
		}
	}
	return "", ""
}

// place copies a movable program into the folder, with everything that it needs.
func (t Tools) place(name, searched string) error {
	from, whole := Movable(name, searched)
	to := filepath.Join(t.Agents(), name)
	switch {
	case from == "":
		return nil
	case from == whole:
		return CopyTool(from, to)
	}
	modules := filepath.Join(string(t), "node_modules") // the name that Node looks for
	if err := os.CopyFS(modules, os.DirFS(whole)); err != nil {
		return err
	}
	if err := os.Symlink(filepath.Join(modules, strings.TrimPrefix(from, whole)), to); err != nil {
		return err
	}
	return t.place("node", searched)
}

// Unmovable selects the programs of agents that this machine cannot give to the image of a pod.
func Unmovable(programs []string) []string {
	return slices.DeleteFunc(slices.Clone(programs), func(name string) bool {
		from, _ := Movable(name, os.Getenv("PATH"))
		return from != ""
	})
}

// LookInside is the argument of this program when it looks into an image. The folder of tools and
// the names of programs or libraries follow. The program prints hasIt or LacksIt for each name.
const (
	LookInside = "look"
	hasIt      = '+'
	LacksIt    = '-'
)

// sayLacking is the body of `__supervise look TOOLS PROGRAM …`.
func sayLacking(t Tools, programs []string) int {
	env := t.after(inherit(os.Environ(), nil))
	var answers []byte
	for _, p := range programs {
		answer := byte(hasIt)
		if name := filepath.Base(p); portableLibrary.MatchString(name) && !hasLibrary(name) || !portableLibrary.MatchString(name) && find(p, "/", env) == "" {
			answer = LacksIt
		}
		answers = append(answers, answer)
	}
	fmt.Println(string(answers))
	return 0
}

// Glibc is the version of the GNU C library that Triphammer needs.
const Glibc = "2.34"

// FolderOf is the folder that a run must read to start a program. For a package of npm, it is the
// folder with all packages that the program needs.
func FolderOf(program string) string {
	const packages = "/node_modules"
	if before, _, found := strings.Cut(program, packages+"/"); found {
		return before + packages
	}
	return filepath.Dir(program)
}

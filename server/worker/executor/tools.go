package executor

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

// An image that lacks git or the program of the agent gets those of this machine, read-only, at
// the end of its PATH, so that its own win.
//
// git comes with the C library and the loader of this machine, which scripts call, so it starts in
// images with any C library or none; /bin/sh has to be there. The program of an agent comes if it
// is a single file that needs no more than the C and C++ libraries, or a package of npm, which gets
// node too. A loader and libraries that the image lacks are mounted where they are on this machine:
// a program that is started by a loader takes that for itself.

// tools is a folder for containers, at the same path outside and inside; empty: there is none.
type tools string

func (t tools) bin() string    { return filepath.Join(string(t), "bin") }    // git
func (t tools) agents() string { return filepath.Join(string(t), "agents") } // where the program of an agent is mounted
func (t tools) lib() string    { return filepath.Join(string(t), "lib") }    // loader and libraries

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
	for _, made := range []string{string(t), t.bin(), t.agents(), filepath.Join(string(t), "core"), t.lib()} {
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
	for _, file := range cLibrary() {
		if err := copyTool(file, filepath.Join(t.lib(), filepath.Base(file))); err != nil {
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
	if err := copyTool(program, filepath.Join(t.lib(), filepath.Base(program)+".bin")); err != nil {
		return "", err
	}
	n, err := needsOf(program)
	if err != nil || n.loader == "" {
		return "", err
	}
	files, err := libraries(n.loader, program)
	if err != nil {
		return "", err
	}
	for name, file := range files {
		if err := copyTool(file, filepath.Join(t.lib(), path.Base(name))); err != nil {
			return "", err
		}
	}
	loader = filepath.Base(n.loader)
	return loader, copyTool(n.loader, filepath.Join(t.lib(), loader))
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

// cLibrary are the loader of this machine, which is first, and the parts of its C and C++
// libraries, by the paths at which programs look for them.
func cLibrary() (files []string) {
	const sh = "/bin/sh"
	n, err := needsOf(sh)
	if err != nil || n.loader == "" {
		return nil
	}
	files = []string{n.loader}
	found, _ := libraries(n.loader, sh)
	dir := filepath.Dir(found["libc.so.6"]) // there is none without the GNU C library
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if name := entry.Name(); portableLibrary.MatchString(name) && name != filepath.Base(n.loader) {
			files = append(files, filepath.Join(dir, name))
		}
	}
	return files
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

// portableLibrary matches the parts of the GNU C library, its loader, and the C++ library.
var portableLibrary = regexp.MustCompile(`^(lib(c|m|dl|rt|pthread|util|resolv|stdc\+\+|gcc_s)\.so\.[0-9]+|ld-linux.*\.so\.[0-9]+)$`)

// portable tells whether a program of this machine starts in every image with the C library that
// this program needs, and the C++ library.
func portable(program string) bool {
	n, err := needsOf(program)
	most, _ := strconv.Atoi(strings.TrimPrefix(glibc, "2."))
	return err == nil && n.glibc <= most && !slices.ContainsFunc(n.libraries, func(l string) bool { return !portableLibrary.MatchString(l) })
}

// starts tells whether what a program of the folder needs is here: its loader and libraries, or
// what its first line names.
func starts(program string, env []string) bool {
	n, err := needsOf(program)
	if err != nil {
		by := interpreter(program)
		return by != "" && find(by, "/", env) != ""
	}
	return n.loader == "" || executable(n.loader) && !slices.ContainsFunc(n.libraries, func(name string) bool { return !hasLibrary(name) })
}

// hasLibrary tells whether a library, or a loader, is where systems have them.
func hasLibrary(name string) bool {
	return slices.ContainsFunc([]string{"/lib*/", "/lib/*-linux-gnu*/", "/usr/lib*/", "/usr/lib/*-linux-gnu*/"}, func(folder string) bool {
		found, _ := filepath.Glob(folder + name) // the pattern is one
		return len(found) > 0
	})
}

// interpreter is the program that the first line of a script names; empty: there is none.
func interpreter(script string) string {
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

// brought are the options of an engine that bring the tools into a container, with those of the
// programs that can be, by the names of their files here, and the libraries that the image misses.
func (e *Executor) brought(missing []string, programs ...string) (options []string) {
	if e.tools == "" {
		return nil
	}
	options = append(options, bind(string(e.tools), ",readonly"))
	mount := func(from, to string) {
		options = append(options, fmt.Sprintf("--mount=type=bind,source=%s,target=%s,readonly", from, to))
	}
	for _, file := range missing {
		mount(filepath.Join(e.tools.lib(), filepath.Base(file)), file)
	}
	for _, name := range programs {
		from := e.portable(name)
		switch place := filepath.Join(e.tools.agents(), name); {
		case from == "":
		case interpreter(from) == "node":
			if to, err := os.Readlink(place); err != nil || to != from { // the package has its other files beside
				_ = os.Remove(place)
				_ = os.Symlink(from, place) // else it is missed
			}
			options = append(options, bind(folderOf(from), ",readonly"))
			if name := "node"; !slices.Contains(programs, name) {
				mount(e.portable(name), filepath.Join(e.tools.agents(), name))
			}
		default:
			mount(from, place)
		}
	}
	return options
}

// portable is the file of a program of this machine that can be brought into containers; empty: it
// cannot.
func (e *Executor) portable(name string) string {
	if e.tools == "" {
		return ""
	}
	from, whole := movable(name, e.path)
	if from == "" || strings.Contains(name+whole, ",") || !slices.Equal(e.without(whole), []string{whole}) {
		return ""
	}
	place := filepath.Join(e.tools.agents(), name)
	if info, err := os.Lstat(place); whole == from && (err != nil || !info.Mode().IsRegular()) {
		_ = os.Remove(place)
		if os.WriteFile(place, nil, 0o444) != nil { // to be mounted over, not executed
			return ""
		}
	}
	return from
}

// movable is the file of a program of searched, a PATH, that starts elsewhere too, and what has to
// be there: the file, or the packages of npm around it. Empty: there is none.
func movable(name, searched string) (from, whole string) {
	if name == "" || filepath.Base(name) != name {
		return "", ""
	}
	from, err := filepath.EvalSymlinks(cmp.Or(find(name, "/", []string{"PATH=" + searched}), "/nonexistent"))
	switch {
	case err != nil || from == self:
		return "", ""
	case portable(from):
		return from, from
	case interpreter(from) == "node" && filepath.Base(folderOf(from)) == "node_modules":
		if node, _ := movable("node", searched); node != "" {
			return from, folderOf(from)
		}
	}
	return "", ""
}

// place copies a program into the folder, with what has to be there, if there is one that can be.
func (t tools) place(name, searched string) error {
	from, whole := movable(name, searched)
	to := filepath.Join(t.agents(), name)
	switch {
	case from == "":
		return nil
	case from == whole:
		return copyTool(from, to)
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

// Unmovable are those of the programs of agents that this machine cannot give the image of a pod.
func Unmovable(programs []string) []string {
	return slices.DeleteFunc(slices.Clone(programs), func(name string) bool {
		from, _ := movable(name, os.Getenv("PATH"))
		return from != ""
	})
}

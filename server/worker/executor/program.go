package executor

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"triphammer/server/inside"
)

// LookPath finds a program as a run does: in the PATH of the runs, and behind their walls. The
// error is exec.ErrNotFound if the PATH has no such program. Another error says why runs cannot
// start the program.
func (e *Executor) LookPath(program string) (string, error) {
	name, _ := e.Isolation()
	candidates := []string{program}
	if !strings.Contains(program, "/") {
		candidates = nil
		for _, dir := range filepath.SplitList(e.path) {
			candidates = append(candidates, filepath.Join(dir, program))
		}
	}
	var hidden error
	for _, full := range candidates {
		if !filepath.IsAbs(full) || !inside.Executable(full) {
			continue
		}
		why := e.hides(name, full)
		if why == nil {
			return full, nil
		}
		if hidden == nil {
			hidden = why
		}
	}
	if hidden != nil {
		return "", hidden
	}
	return "", exec.ErrNotFound
}

// hides says why runs cannot start a program of this machine; nil: they can.
func (e *Executor) hides(isolation, full string) error {
	real, err := filepath.EvalSymlinks(full)
	if err != nil {
		return err
	}
	if a := e.account; a != nil {
		info, err := os.Stat(real)
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && (!a.sees(real) || !a.mayEnter(st, info.Mode())) {
			return fmt.Errorf("%s is closed to the user %s, whom runs have: install it where every user may start it, such as in /usr/local/bin", real, a.name)
		}
	}
	lost := ""
	switch isolation {
	case Kernel: // Landlock decides about the file itself, whatever its path
		if _, found := holder(e.readableReal(), real); !found {
			lost = real
		}
	case Sandbox: // the sandbox must have every link and folder on the way
		lost = beyond(e.readable(), full)
	}
	if lost == "" {
		return nil
	}
	if lost == full {
		return fmt.Errorf("runs may not read %s: allow them to read its folder (--run-read %s)", full, inside.FolderOf(real))
	}
	return fmt.Errorf("%s leads to %s, which runs may not read: allow them to read its folder (--run-read %s)", full, lost, inside.FolderOf(lost))
}

// readableReal is readable with all links resolved.
func (e *Executor) readableReal() (all []string) {
	for _, path := range e.readable() {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			all = append(all, real)
		}
	}
	return all
}

// holder finds the file or folder that is the path or contains it.
func holder(folders []string, path string) (folder string, found bool) {
	for _, folder := range folders {
		if path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/") {
			return folder, true
		}
	}
	return "", false
}

// maxHops is how many links the kernel follows in a path.
const maxHops = 40

// beyond follows the links of a path where only the folders exist. It returns the first place
// on the way that does not exist; empty: all exist.
func beyond(folders []string, path string) string {
follow:
	for range maxHops {
		folder, found := holder(folders, path)
		if !found {
			return path
		}
		for at := folder; ; {
			if target, err := os.Readlink(at); err == nil {
				if !filepath.IsAbs(target) {
					target = filepath.Join(filepath.Dir(at), target)
				}
				path = filepath.Clean(target + strings.TrimPrefix(path, at))
				continue follow
			}
			if at == path {
				return ""
			}
			name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, at), "/"), "/")
			at = filepath.Join(at, name)
		}
	}
	return path
}

// brought are the options of an engine that bring the tools into a container, with the portable
// programs, by the names of their files here, and the libraries that the image lacks.
func (e *Executor) brought(missing []string, programs ...string) (options []string) {
	if e.tools == "" {
		return nil
	}
	options = append(options, bind(string(e.tools), ",readonly"))
	mount := func(from, to string) {
		options = append(options, fmt.Sprintf("--mount=type=bind,source=%s,target=%s,readonly", from, to))
	}
	for _, file := range missing {
		mount(filepath.Join(e.tools.Lib(), filepath.Base(file)), file)
	}
	for _, name := range programs {
		from := e.portable(name)
		switch place := filepath.Join(e.tools.Agents(), name); {
		case from == "":
		case inside.Interpreter(from) == "node":
			if to, err := os.Readlink(place); err != nil || to != from { // a link, because the package has its other files beside the program
				_ = os.Remove(place)
				_ = os.Symlink(from, place) // without the link, the run misses the program
			}
			options = append(options, bind(inside.FolderOf(from), ",readonly"))
			if name := "node"; !slices.Contains(programs, name) {
				mount(e.portable(name), filepath.Join(e.tools.Agents(), name))
			}
		default:
			mount(from, place)
		}
	}
	return options
}

// portable is the file of a program of this machine, if the program can be brought into
// containers; else empty.
func (e *Executor) portable(name string) string {
	if e.tools == "" {
		return ""
	}
	from, whole := inside.Movable(name, e.path)
	if from == "" || strings.Contains(name+whole, ",") || !slices.Equal(e.without(whole), []string{whole}) {
		return ""
	}
	place := filepath.Join(e.tools.Agents(), name)
	if info, err := os.Lstat(place); whole == from && (err != nil || !info.Mode().IsRegular()) {
		_ = os.Remove(place)
		if os.WriteFile(place, nil, 0o444) != nil { // only a place to mount over
			return ""
		}
	}
	return from
}

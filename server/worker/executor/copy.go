package executor

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"triphammer/server/disk"
	"triphammer/server/inside"
)

// packedSupervisor is the program cmd/supervisor, in the format of gzip; nil: it is not in this program,
// which then supervises runs itself.
var packedSupervisor []byte

// copy makes the copies of programs that the wall needs.
func (e *Executor) copy(w wall) (err error) {
	if w.small && e.supervisor == "" {
		e.supervisor = e.placeSupervisor()
	}
	if w.copies && e.program == "" {
		e.program, err = copyProgram(e.dir)
	}
	if err == nil && w.name == Container && e.tools == "" {
		if e.tools, err = inside.MakeTools(e.dir, e.path); err != nil {
			e.logger.Warn("images get no git of this machine", "error", err)
		}
		err = nil
	}
	return err
}

// leastFree is how much must be free on the disk for copies that runs can do without, in bytes.
const leastFree = 256 << 20

// placeSupervisor is the path of what supervises runs within the walls of this machine: the small program,
// or this program if that is not in it, or cannot be placed and executed. With the small program, this program
// is copied too, because commands of runs may name it (task.ThisProgram).
func (e *Executor) placeSupervisor() string {
	if packedSupervisor == nil {
		return inside.Self
	}
	path := filepath.Join(e.dir, ".supervisor")
	size := binary.LittleEndian.Uint32(packedSupervisor[len(packedSupervisor)-4:]) // RFC 1952, 2.3.1
	program := ""
	room, err := disk.Measure(e.dir)
	if err == nil && room.Free < leastFree {
		err = fmt.Errorf("only %s are free on its disk", disk.Bytes(room.Free))
	}
	if err == nil {
		program, err = copyProgram(e.dir)
	}
	if err == nil {
		err = unpack(path, int64(size))
	}
	if err == nil {
		e.program = program
		return path
	}
	e.logger.Warn("runs start more slowly, because a program cannot be placed and executed in the folder of the workspaces", "file", path, "error", err)
	return inside.Self
}

// unpack places the small program, and tries it.
func unpack(path string, size int64) error {
	err := place(path, size, func(temp string, _ fs.FileInfo) error {
		z, err := gzip.NewReader(bytes.NewReader(packedSupervisor))
		if err != nil {
			return err
		}
		return writeProgram(temp, z)
	})
	if err != nil {
		return err
	}
	err = exec.Command(path, inside.SuperviseCommand).Run()
	if exited := (*exec.ExitError)(nil); errors.As(err, &exited) && exited.ExitCode() == inside.NotForPeople {
		return nil
	}
	return errors.Join(fmt.Errorf("trying it: %v", err), os.Remove(path))
}

// copyProgram puts a copy of this program where the user of the runs can execute it: the
// original may be in a folder that is closed to that user, or be replaced while the server
// runs.
func copyProgram(dir string) (path string, err error) {
	path = filepath.Join(dir, ".triphammer")
	err = place(path, -1, func(temp string, original fs.FileInfo) error {
		if program, err := os.Executable(); err == nil && original.Mode() == 0o755 && os.Link(program, temp) == nil {
			if linked, err := os.Stat(temp); err == nil && os.SameFile(linked, original) {
				return nil
			}
			_ = os.Remove(temp) // the program was replaced
		}
		from, err := os.Open(inside.Self)
		if err != nil {
			return err
		}
		defer func() { _ = from.Close() }()
		return writeProgram(temp, from)
	})
	if err != nil {
		return "", fmt.Errorf("copying this program for the runs: %w", err)
	}
	return path, nil
}

// place makes a program at a path, of a size and as old as this program; less than 0: as large, too. An
// earlier file that is the same stays.
func place(path string, size int64, fill func(temp string, original fs.FileInfo) error) error {
	original, err := os.Stat(inside.Self)
	if err != nil {
		return err
	}
	if size < 0 {
		size = original.Size()
	}
	if c, err := os.Lstat(path); err == nil && c.Mode() == 0o755 && c.Size() == size && c.ModTime().Equal(original.ModTime()) {
		return nil
	}
	temp := path + ".new"
	_ = os.Remove(temp)
	defer func() { _ = os.Remove(temp) }()
	if err := fill(temp, original); err != nil {
		return err
	}
	return errors.Join(os.Chtimes(temp, original.ModTime(), original.ModTime()), os.Rename(temp, path))
}

// writeProgram makes an executable file.
func writeProgram(path string, from io.Reader) error {
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Chmod(0o755), to.Sync(), to.Close())
}

// Package disk tells how much space is left for the store and the workspaces of runs, and
// when it is too little. It only measures: the store and the worker decide what to do.
package disk

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Room is the size and the free space of a file system.
type Room struct {
	Free, Total int64 // bytes that may still be written, and all bytes
	// FreeFiles and Files count inodes. Files is 0 if the file system makes inodes as
	// they are needed.
	FreeFiles, Files int64
}

// Measure looks at the file system that a folder is on.
func Measure(dir string) (Room, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Room{}, fmt.Errorf("measuring the file system of %s: %w", dir, err)
	}
	block := st.Bsize // Linux gives the figures of every file system in this unit
	if st.Frsize > 0 {
		block = st.Frsize
	}
	return Room{
		Free: times(st.Bavail, block), Total: times(st.Blocks, block),
		FreeFiles: times(st.Ffree, 1), Files: times(st.Files, 1),
	}, nil
}

// most is the largest plausible size: some network file systems report a size with all bits set.
const most = 1 << 60

func times(n uint64, size int64) int64 {
	if size <= 0 || n > uint64(most/size) {
		return most
	}
	return int64(n) * size
}

// Floor is how much of a file system must stay free: the smaller of a number of bytes
// and a share of the whole. The zero value demands nothing.
type Floor struct {
	bytes   int64
	percent float64
}

// DefaultFloor is the default floor as text: a share of a small file system, and a fixed
// size on a large one.
const DefaultFloor = "512MiB,5%"

var units = []struct {
	name string
	size float64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"kB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
}

// ParseFloor reads a floor: a size (512MiB, 2GB), a share (5%), or both with a comma between
// them. If both are there, the smaller counts. 0 demands nothing.
func ParseFloor(text string) (Floor, error) {
	if text == "0" {
		return Floor{}, nil
	}
	f := Floor{bytes: most, percent: 100}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		number, percent := strings.CutSuffix(part, "%")
		size := 1.0
		for _, u := range units {
			if n, ok := strings.CutSuffix(part, u.name); ok {
				number, size = n, u.size
			}
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		switch n *= size; {
		case err != nil || !(n > 0) || n > most || percent && n > 90 || !percent && size == 1:
			return Floor{}, fmt.Errorf("%q is no amount of free space: "+
				"write a size such as 512MiB, a part such as 5%%, both (the smaller counts), or 0 for no limit", text)
		case percent:
			f.percent = n
		default:
			f.bytes = int64(n)
		}
	}
	return f, nil
}

// ParseSize reads a size with its unit, such as 16MiB or 2GB.
func ParseSize(text string) (int64, error) {
	for _, u := range units {
		number, ok := strings.CutSuffix(strings.TrimSpace(text), u.name)
		if !ok {
			continue
		}
		if n, err := strconv.ParseFloat(strings.TrimSpace(number), 64); err == nil && n > 0 && n*u.size >= 1 && n*u.size <= most {
			return int64(n * u.size), nil
		}
	}
	return 0, fmt.Errorf("%q is no size: write one such as 16MiB or 2GB", text)
}

// of is the floor of a file system, in bytes and in inodes.
func (f Floor) of(r Room) (bytes, files int64) {
	if f == (Floor{}) {
		return 0, 0
	}
	return min(f.bytes, int64(float64(r.Total)*f.percent/100)), min(maxFiles, r.Files/20)
}

// maxFiles is the largest number of inodes that must stay free.
const maxFiles = 4000

// Level tells how short space is.
type Level int

// The levels.
const (
	Enough   Level = iota
	Low            // below the floor
	Critical       // below a quarter of the floor
)

// String is the level as a word of the API.
func (l Level) String() string { return [...]string{"ok", "low", "critical"}[l] }

// State is the result of one look at a volume.
type State struct {
	Volume string // "data" or "workspaces"
	Room
	Floor int64 // bytes that must stay free
	Level Level
	// Inodes tells that inodes are short, and not bytes.
	Inodes bool
	// Lacks is how many bytes (or inodes, if those are short) must become free until the
	// level is no longer Critical.
	Lacks int64
}

// Problem tells the operator what is short; empty: nothing is.
func (s State) Problem() string {
	if s.Level == Enough {
		return ""
	}
	if s.Inodes {
		return fmt.Sprintf("the file system of the %s has %d of %d inodes left: too many small files", volumeNames[s.Volume], s.FreeFiles, s.Files)
	}
	return fmt.Sprintf("the file system of the %s has %s of %s left, less than the %s that --min-free asks for",
		volumeNames[s.Volume], Bytes(s.Free), Bytes(s.Total), Bytes(s.Floor))
}

// Places that are watched.
const (
	Data       = "data"
	Workspaces = "workspaces"
)

var volumeNames = map[string]string{Data: "data directory", Workspaces: "workspaces"}

// Watch looks at the volumes of a server. It is safe for concurrent use.
type Watch struct {
	floor Floor
	dirs  map[string]string

	mu   sync.Mutex
	last map[string]Level // at the last look
}

// NewWatch makes a Watch of the folders of the store and of the workspaces.
func NewWatch(floor Floor, data, workspaces string) *Watch {
	return &Watch{floor: floor, dirs: map[string]string{Data: data, Workspaces: workspaces}, last: make(map[string]Level)}
}

// Look measures a volume.
func (w *Watch) Look(volume string) (State, error) {
	room, err := Measure(w.dirs[volume])
	if err != nil {
		return State{Volume: volume}, err
	}
	return w.level(volume, room), nil
}

// level decides the level of a volume. For a better level than before, a quarter more than the
// limit must be free, so that the level does not change back and forth.
func (w *Watch) level(volume string, room Room) State {
	s := State{Volume: volume, Room: room}
	bytes, files := w.floor.of(room)
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.last[volume]
	s.Floor = bytes
	below := func(part int64, level Level) bool {
		floor, filesFloor := bytes/part, files/part
		if was >= level {
			floor, filesFloor = floor*5/4, filesFloor*5/4
		}
		s.Inodes = room.FreeFiles < filesFloor && room.Free >= floor
		return room.Free < floor || s.Inodes
	}
	switch {
	case below(4, Critical):
		s.Level, s.Lacks = Critical, bytes/4*5/4-room.Free
		if s.Inodes {
			s.Lacks = files/4*5/4 - room.FreeFiles
		}
	case below(1, Low):
		s.Level = Low
	}
	w.last[volume] = s.Level
	return s
}

// All looks at every volume. The error joins the errors of volumes that could not be read.
func (w *Watch) All() (states []State, err error) {
	for _, volume := range []string{Data, Workspaces} {
		s, lookErr := w.Look(volume)
		if err = errors.Join(err, lookErr); lookErr == nil {
			states = append(states, s)
		}
	}
	return states, err
}

// Bytes formats a number of bytes for people.
func Bytes(n int64) string {
	if n < 10<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	size, unit := float64(n)/1024, "KiB"
	for _, next := range []string{"MiB", "GiB", "TiB"} {
		if size < 1024 {
			break
		}
		size, unit = size/1024, next
	}
	if size < 10 {
		return fmt.Sprintf("%.1f %s", size, unit)
	}
	return fmt.Sprintf("%.0f %s", size, unit)
}

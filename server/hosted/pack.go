package hosted

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Limits of a push. A small pack can become large, and cost git much time and memory.
const (
	maxPack     = 64 << 20  // bytes of the pack
	maxUnpacked = 256 << 20 // bytes of all objects
	maxObject   = 64 << 20  // bytes of one object
	maxObjects  = 250_000
	maxCommands = 1 << 20 // bytes of the commands to move refs
)

// errPack says that a pack is broken. git may read it in another way than checkPack, so git does
// not get it.
var errPack = errors.New("the push broke off, or it is not what git sends: push again")

// spool keeps the body of a push in a file, and checks the unpacked size of its pack. If the pack
// is too large, spool answers the request, and returns the refs of the push and no file.
func spool(w http.ResponseWriter, req *http.Request, to string) (f *os.File, refused []Pushed, err error) {
	body := io.Reader(http.MaxBytesReader(w, req.Body, maxPack+maxCommands))
	if slices.Contains(req.Header.Values("Content-Encoding"), "gzip") {
		if body, err = gzip.NewReader(body); err != nil {
			return nil, nil, err
		}
	}
	if f, err = os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600); err != nil {
		return nil, nil, err
	}
	taken := false
	defer func() {
		if !taken {
			f, err = nil, errors.Join(err, f.Close())
		}
	}()
	sent, err := io.Copy(f, io.LimitReader(body, maxPack+maxCommands+1))
	tooLong := (*http.MaxBytesError)(nil)
	long := sent > maxPack+maxCommands || errors.As(err, &tooLong)
	if err != nil && !long {
		return nil, nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, nil, err
	}
	in := bufio.NewReader(f)
	asked, abilities, err := commands(in)
	if err == nil && long {
		err = fmt.Errorf("the push has more than %d MiB: push older commits first", maxPack>>20)
	} else if err == nil {
		hash := 20
		if slices.Contains(abilities, "object-format=sha256") {
			hash = 32
		}
		err = checkPack(in, hash)
	}
	if err != nil {
		refuse(w, asked, abilities, err.Error())
		return f, asked, nil
	}
	_, err = f.Seek(0, io.SeekStart)
	taken = err == nil
	return f, nil, err
}

// commands reads the refs that a push wants to move, and the abilities of the client
// (gitprotocol-pack(5)).
func commands(in *bufio.Reader) (asked []Pushed, abilities []string, err error) {
	for read := 0; read <= maxCommands; {
		head := make([]byte, 4)
		if _, err := io.ReadFull(in, head); err != nil {
			return nil, nil, errPack
		}
		n, err := strconv.ParseUint(string(head), 16, 16)
		switch {
		case err != nil || n > 0 && n < 4:
			return nil, nil, errPack
		case n == 0:
			return asked, abilities, nil
		}
		line := make([]byte, n-4)
		if _, err := io.ReadFull(in, line); err != nil {
			return nil, nil, errPack
		}
		read += len(line)
		command, can, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), "\x00")
		if can != "" {
			abilities = strings.Fields(can)
		}
		if words := strings.SplitN(command, " ", 3); len(words) == 3 && len(asked) < maxPushed {
			asked = append(asked, Pushed{Ref: words[2], Commit: words[1]})
		}
	}
	return asked, abilities, errors.New("the push names too many refs: push fewer at once")
}

// refuse answers a push like a git that could not unpack it.
func refuse(w http.ResponseWriter, asked []Pushed, abilities []string, why string) {
	packet := func(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }
	var report strings.Builder
	report.WriteString(packet("unpack " + why + "\n"))
	for _, p := range asked {
		report.WriteString(packet("ng " + p.Ref + " the push is not taken\n"))
	}
	report.WriteString("0000")
	w.Header().Set("Content-Type", "application/x-"+Push+"-result")
	w.Header().Set("Cache-Control", "no-cache")
	text := report.String()
	if !slices.Contains(abilities, "side-band-64k") {
		_, _ = io.WriteString(w, text) // the person may have gone
		return
	}
	for part := range slices.Chunk([]byte(text), 60_000) {
		_, _ = io.WriteString(w, packet("\x01"+string(part)))
	}
	_, _ = io.WriteString(w, "0000")
}

// Kinds of entries of a pack that are not whole objects (gitformat-pack(5)).
const (
	offsetDelta = 6
	hashDelta   = 7
)

// checkPack adds up the unpacked sizes of the objects of a pack. in may be at its end, because a
// push that only deletes has no pack.
func checkPack(in *bufio.Reader, hash int) error {
	head := make([]byte, 12)
	if _, err := io.ReadFull(in, head); err == io.EOF {
		return nil
	} else if err != nil || !bytes.HasPrefix(head, []byte("PACK")) {
		return errPack
	}
	count := binary.BigEndian.Uint32(head[8:])
	if count > maxObjects {
		return fmt.Errorf("the push has %d objects, and %d are taken at once: push older commits first", count, maxObjects)
	}
	var unpacker io.ReadCloser
	total := uint64(0)
	add := func(size uint64) error {
		if size > maxObject {
			return fmt.Errorf("a file of the push has more than %d MiB: leave it out of the commits", maxObject>>20)
		}
		if total += size; total > maxUnpacked {
			return fmt.Errorf("the files of the push have more than %d MiB in all their versions: push older commits first, or leave large files out", maxUnpacked>>20)
		}
		return nil
	}
	for range count {
		kind, size, err := objectHead(in, hash)
		if err != nil {
			return errPack
		}
		if err := add(size); err != nil {
			return err
		}
		if unpacker == nil {
			unpacker, err = zlib.NewReader(in)
		} else {
			err = unpacker.(zlib.Resetter).Reset(in, nil)
		}
		if err != nil {
			return errPack
		}
		limited := &io.LimitedReader{R: unpacker, N: int64(size) + 1}
		content := bufio.NewReaderSize(limited, 512)
		if kind == offsetDelta || kind == hashDelta { // begins with the sizes of its base and of its result
			if _, err := binary.ReadUvarint(content); err != nil {
				return errPack
			}
			made, err := binary.ReadUvarint(content)
			if err != nil {
				return errPack
			}
			if err := add(made); err != nil {
				return err
			}
		}
		if _, err := io.Copy(io.Discard, content); err != nil || limited.N != 1 {
			return errPack
		}
	}
	return nil
}

// objectHead reads the head of an object, before its compressed content: the kind, the size, and
// the base of a delta (gitformat-pack(5)).
func objectHead(in *bufio.Reader, hash int) (kind byte, size uint64, err error) {
	first, err := in.ReadByte()
	if err != nil {
		return 0, 0, err
	}
	kind, size = first>>4&7, uint64(first&15)
	if first&0x80 != 0 {
		rest, err := binary.ReadUvarint(in)
		if err != nil {
			return 0, 0, err
		}
		size |= min(rest, maxUnpacked) << 4 // does not overflow; a larger size is refused anyway
	}
	switch kind {
	case offsetDelta:
		for more := byte(0x80); more&0x80 != 0; {
			if more, err = in.ReadByte(); err != nil {
				return 0, 0, err
			}
		}
	case hashDelta:
		_, err = in.Discard(hash)
	}
	return kind, size, err
}

package gateway

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/zlib"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Limits of a pack whose commits are read. They bound memory and time, because a pack comes
// from a run.
const (
	maxCommitBytes = 32 << 20 // of all commits
	leastCommit    = 128      // bytes that a commit counts, however short it is
	maxInflated    = 4 << 30  // of all objects
)

// Types of objects in a pack (https://git-scm.com/docs/pack-format).
const (
	packCommit      = 1
	packOffsetDelta = 6
	packRefDelta    = 7
)

var errPack = errors.New("the pack is not as Git writes packs")

// pack reads the commits of a pack as it passes by.
type pack struct {
	in      *counted
	z       io.Reader         // for all objects; nil before the first
	size    int               // bytes of an object id
	at      map[int64][]byte  // commits, by where they begin
	id      map[string][]byte // the same, by id in hex
	bytes   int               // of the commits
	left    int64             // of maxInflated
	parents map[string][]string
}

// packAhead is how many bytes readPack reads ahead of what it has understood, at most.
const packAhead = 4096

// readPack reads a pack, and not to the end of r, which may have more. oid is an object id of the
// repository.
func readPack(r io.Reader, oid string) (*pack, error) {
	p := &pack{in: &counted{r: bufio.NewReaderSize(r, packAhead)}, size: len(oid) / 2, at: make(map[int64][]byte), id: make(map[string][]byte), parents: make(map[string][]string), left: maxInflated}
	var head [12]byte
	if _, err := io.ReadFull(p.in, head[:]); err != nil {
		return nil, fmt.Errorf("%w: %w", errPack, err)
	}
	if v := binary.BigEndian.Uint32(head[4:]); string(head[:4]) != "PACK" || v != 2 && v != 3 {
		return nil, errPack
	}
	for range binary.BigEndian.Uint32(head[8:]) {
		if err := p.object(); err != nil {
			return nil, err
		}
	}
	if _, err := io.CopyN(io.Discard, p.in, int64(p.size)); err != nil { // the checksum, which the forge checks
		return nil, fmt.Errorf("%w: %w", errPack, err)
	}
	return p, nil
}

// counted reads and counts bytes. It hands out single bytes, so that a reader of compressed
// data takes no byte behind them.
type counted struct {
	r *bufio.Reader
	n int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

func (c *counted) ReadByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err == nil {
		c.n++
	}
	return b, err
}

// object reads the next object.
func (p *pack) object() error {
	begin := p.in.n
	b, err := p.in.ReadByte()
	if err != nil {
		return fmt.Errorf("%w: %w", errPack, err)
	}
	kind, size := b>>4&7, int64(b&15)
	for shift := 4; b >= 0x80; shift += 7 {
		if b, err = p.in.ReadByte(); err != nil || shift > 53 {
			return errors.Join(errPack, err)
		}
		size |= int64(b&0x7f) << shift
	}
	var base []byte // of a delta, if it is a commit
	switch kind {
	case packOffsetDelta:
		back, err := p.offset()
		if err != nil {
			return err
		}
		base = p.at[begin-back]
	case packRefDelta:
		id := make([]byte, p.size)
		if _, err := io.ReadFull(p.in, id); err != nil {
			return fmt.Errorf("%w: %w", errPack, err)
		}
		base = p.id[hex.EncodeToString(id)]
	}
	content, err := p.inflate(size, kind == packCommit || base != nil)
	if err != nil {
		return err
	}
	if base != nil {
		if content, err = applyDelta(base, content); err != nil {
			return err
		}
	}
	if kind == packCommit || base != nil {
		return p.commit(begin, content)
	}
	return nil
}

// offset reads how far back the base of a delta begins.
func (p *pack) offset() (int64, error) {
	var back int64
	for i := 0; ; i++ {
		b, err := p.in.ReadByte()
		if err != nil || i > 7 {
			return 0, errors.Join(errPack, err)
		}
		if back = back<<7 | int64(b&0x7f); b < 0x80 {
			return back, nil
		}
		back++
	}
}

// inflate reads the content of an object, and returns it if keep.
func (p *pack) inflate(size int64, keep bool) ([]byte, error) {
	if p.left -= size; p.left < 0 || keep && size > maxCommitBytes {
		return nil, errors.New("the pack is too large to be checked")
	}
	var err error
	if p.z == nil {
		p.z, err = zlib.NewReader(p.in)
	} else {
		err = p.z.(zlib.Resetter).Reset(p.in, nil) // a new one for each of a million objects takes 40 GB
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errPack, err)
	}
	var kept bytes.Buffer
	to := io.Discard
	if keep {
		to = &kept
	}
	n, err := io.Copy(to, io.LimitReader(p.z, size+1))
	if err != nil || n != size {
		return nil, errors.Join(errPack, err)
	}
	return kept.Bytes(), nil
}

// commit keeps a commit, which begins at a place of the pack.
func (p *pack) commit(begin int64, content []byte) error {
	if p.bytes += max(len(content), leastCommit); p.bytes > maxCommitBytes {
		return errors.New("the push has too many commits to be checked")
	}
	var h hash.Hash = sha1.New()
	if p.size == sha256.Size {
		h = sha256.New()
	}
	_, _ = io.WriteString(h, "commit "+strconv.Itoa(len(content))+"\x00")
	_, _ = h.Write(content)
	id := hex.EncodeToString(h.Sum(nil))
	p.at[begin], p.id[id] = content, content
	p.parents[id] = parentsOf(string(content))
	return nil
}

// parentsOf reads the parents of a commit where Git does: right after its tree. Lines further
// down may look the same, and mean nothing.
func parentsOf(commit string) (parents []string) {
	tree, rest, _ := strings.Cut(commit, "\n")
	if !strings.HasPrefix(tree, "tree ") {
		return nil
	}
	for {
		line, below, ended := strings.Cut(rest, "\n")
		parent, ok := strings.CutPrefix(line, "parent ")
		if !ok || !ended || !objectID.MatchString(parent) {
			return parents
		}
		parents, rest = append(parents, strings.Clone(parent)), below // which outlives the commit
	}
}

// leads tells whether a commit has another commit among its ancestors, as far as they are known.
func leads(known map[string][]string, from, to string) bool {
	seen := map[string]bool{from: true}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		parents := known[queue[0]]
		if slices.Contains(parents, to) {
			return true
		}
		for _, id := range parents {
			if !seen[id] {
				seen[id] = true
				queue = append(queue, id)
			}
		}
	}
	return false
}

// applyDelta makes an object of its base and a delta.
func applyDelta(base, delta []byte) ([]byte, error) {
	before, n := binary.Uvarint(delta)
	if n <= 0 || before != uint64(len(base)) {
		return nil, errPack
	}
	delta = delta[n:]
	after, n := binary.Uvarint(delta)
	if n <= 0 || after > maxCommitBytes {
		return nil, errPack
	}
	delta = delta[n:]
	made := make([]byte, 0, min(after, 64<<10))
	for len(delta) > 0 {
		op := delta[0]
		delta = delta[1:]
		var piece []byte
		if op >= 0x80 { // a piece of the base
			var offset, size int
			for i := range 7 {
				if op>>i&1 == 0 {
					continue
				}
				if len(delta) == 0 {
					return nil, errPack
				}
				if i < 4 {
					offset |= int(delta[0]) << (8 * i)
				} else {
					size |= int(delta[0]) << (8 * (i - 4))
				}
				delta = delta[1:]
			}
			size = cmp.Or(size, 0x10000)
			if offset > len(base) || size > len(base)-offset {
				return nil, errPack
			}
			piece = base[offset : offset+size]
		} else { // a piece of the delta
			if op == 0 || int(op) > len(delta) {
				return nil, errPack
			}
			piece, delta = delta[:op], delta[op:]
		}
		if made = append(made, piece...); uint64(len(made)) > after {
			return nil, errPack
		}
	}
	if uint64(len(made)) != after {
		return nil, errPack
	}
	return made, nil
}

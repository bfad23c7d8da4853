package inside

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"io"
	"strings"
)

// maxPatches bounds all patches of a run together, in bytes. It is less than the default limit of
// one artifact.
const maxPatches = 15 << 20

// patch has the changes of one repository, in the form of `git apply`: with modes, links, empty
// files and binary files.
type patch struct {
	repository string
	made       bool // by the agent
	files      int
	body       bytes.Buffer
	without    []string // the changes that are left out, and why
	parent     string   // the repository around this one; ".": none
	submodules bool     // a submodule has another commit
}

// add adds a change. It returns false if there is no room for the change, or if a content is not
// known. open opens a new content that is too large for after.
func (p *patch) add(c change, before, after []byte, open func(change) (io.ReadCloser, error), room int) bool {
	p.files++
	name := strings.TrimPrefix(c.name, p.repository+"/")
	was, is := c.was, c.is
	p.submodules = p.submodules || is != nil && is.info.mode&submodule != 0
	var text, why string
	switch {
	case after == nil && !is.hashed:
		why = "its content is not known"
	case was != nil && !was.hashed:
		why = "its old content is not known"
	case was != nil && is != nil && was.info.gitMode()[:3] != is.info.gitMode()[:3]:
		// A file became a link, or a link a file.
		text = gitDiff(name, was, nil, before, []byte{}) + gitDiff(name, nil, is, []byte{}, after)
	case after == nil:
		content, err := open(c)
		if err != nil {
			why = "its content is not known"
			break
		}
		text = gitHeader(name, was, is) + gitBinary(is.info.size, content, room-p.body.Len())
		_ = content.Close() // only read
	default:
		text = gitDiff(name, was, is, before, after)
	}
	if p.body.Len()+len(text) > room {
		text, why = "", fmt.Sprintf("all patches of a run can have %d MiB", maxPatches>>20)
	}
	if why != "" {
		p.without = append(p.without, fmt.Sprintf("%q: %s", name, why))
		return false
	}
	p.body.WriteString(text)
	return true
}

// maxWithout bounds the number of left out files that a patch names.
const maxWithout = 50

// text is the whole patch, with instructions for using it. file is the name of the patch.
func (p *patch) text(file string) string {
	var out strings.Builder
	place, command := "a copy of the workspace", "git apply"
	switch {
	case p.made && p.parent != ".":
		place, command = fmt.Sprintf("a clone of %q", p.parent), fmt.Sprintf("git apply --directory=%s", shellQuoted(strings.TrimPrefix(p.repository, p.parent+"/")))
	case p.made:
		place = fmt.Sprintf("an empty folder, for %q, which the run has made", p.repository)
	case p.repository != ".":
		place = fmt.Sprintf("a clone of %q", p.repository)
	}
	if p.submodules && !p.made {
		command += " --index" // without this, Git leaves submodules out
	}
	fmt.Fprintf(&out, "# Changed files: %d. Apply them in %s:\n#   %s %s\n", p.files, place, command, file)
	if p.submodules {
		out.WriteString("# A submodule has another commit. If nobody has pushed that, take its files: they are in the patch of the submodule.\n")
	}
	if n := len(p.without); n > 0 {
		fmt.Fprintf(&out, "# INCOMPLETE: this patch leaves out %d of them:\n", n)
		for _, line := range p.without[:min(n, maxWithout)] {
			fmt.Fprintf(&out, "#   %s\n", line)
		}
		if n > maxWithout {
			fmt.Fprintf(&out, "#   and %d more\n", n-maxWithout)
		}
	}
	out.WriteByte('\n')
	out.Write(p.body.Bytes())
	return out.String()
}

// gitDiff is a change in the format of `git diff --binary --full-index` (git-diff(1),
// "Generating patch text with -p"). If the old content is not known, before is nil, and the
// change has the form for binary files, which needs only the ID of the old content.
func gitDiff(name string, was, is *entry, before, after []byte) string {
	header := gitHeader(name, was, is)
	switch {
	case was != nil && is != nil && was.blob == is.blob:
		return header // only the mode changed
	case before == nil || !isText(before) || !isText(after):
		return header + gitBinary(int64(len(after)), bytes.NewReader(after), maxPatches)
	}
	from, to := quoted("a/"+name), quoted("b/"+name)
	if was == nil {
		from = "/dev/null"
	}
	if is == nil {
		to = "/dev/null"
	}
	return header + unifiedDiff(from, to, before, after)
}

// gitHeader begins a change with the old and new modes and IDs of the content.
func gitHeader(name string, was, is *entry) string {
	var out strings.Builder
	fmt.Fprintf(&out, "diff --git %s %s\n", quoted("a/"+name), quoted("b/"+name))
	var old, now blobID // zeros if there is no file
	mode := ""
	switch {
	case was == nil:
		now = is.blob
		fmt.Fprintf(&out, "new file mode %s\n", is.info.gitMode())
	case is == nil:
		old = was.blob
		fmt.Fprintf(&out, "deleted file mode %s\n", was.info.gitMode())
	default:
		old, now = was.blob, is.blob
		if mode = " " + is.info.gitMode(); was.info.gitMode() != is.info.gitMode() {
			fmt.Fprintf(&out, "old mode %s\nnew mode %s\n", was.info.gitMode(), is.info.gitMode())
			mode = ""
		}
	}
	if old != now {
		fmt.Fprintf(&out, "index %x..%x%s\n", old, now, mode)
	}
	return out.String()
}

// gitBinary is a content in the form for binary files. It is cut when it is larger than room.
func gitBinary(size int64, content io.Reader, room int) string {
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	for packed.Len() <= room {
		if _, err := io.CopyN(z, content, 1<<20); err != nil {
			break // its end
		}
	}
	_ = z.Close() // into memory
	var out strings.Builder
	fmt.Fprintf(&out, "GIT binary patch\nliteral %d\n", size)
	const line = 52 // bytes
	for data := packed.Bytes(); len(data) > 0; {
		n := min(len(data), line)
		if n <= 26 {
			out.WriteByte(byte('A' + n - 1))
		} else {
			out.WriteByte(byte('a' + n - 27))
		}
		base85(&out, data[:n])
		out.WriteByte('\n')
		data = data[n:]
	}
	out.WriteByte('\n')
	return out.String()
}

// base85 writes data in the form of Git's binary patches: four bytes in five digits.
func base85(out *strings.Builder, data []byte) {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
	for ; len(data) > 0; data = data[min(4, len(data)):] {
		var four [4]byte
		copy(four[:], data)
		value := uint32(four[0])<<24 | uint32(four[1])<<16 | uint32(four[2])<<8 | uint32(four[3])
		var five [5]byte
		for i := len(five) - 1; i >= 0; i-- {
			five[i], value = digits[value%85], value/85
		}
		out.Write(five[:])
	}
}

// quoted is a path as Git writes it: in quotes if it has more than plain characters.
func quoted(name string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+@,=#~%", r)
	}
	if strings.IndexFunc(name, func(r rune) bool { return !plain(r) }) < 0 {
		return name
	}
	var out strings.Builder
	out.WriteByte('"')
	for _, c := range []byte(name) {
		switch {
		case c == '"' || c == '\\':
			out.Write([]byte{'\\', c})
		case c < ' ' || c > '~':
			fmt.Fprintf(&out, `\%03o`, c)
		default:
			out.WriteByte(c)
		}
	}
	out.WriteByte('"')
	return out.String()
}

package sandbox

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"strings"
)

// maxPatches is how many bytes all patches of a run have together. It is less than an artifact
// may have by default.
const maxPatches = 15 << 20

// patch is the changes of one repository, as `git apply` takes them: with modes, links, empty
// files and files that are not text.
type patch struct {
	repository string
	made       bool // by the agent
	files      int
	body       bytes.Buffer
	without    []string // what is left out, and why
}

// add adds a change, and tells whether it has room for it and knows enough of it.
func (p *patch) add(c change, before, after []byte, room int) bool {
	p.files++
	name := strings.TrimPrefix(c.name, p.repository+"/")
	was, is := c.was, c.is
	var text, why string
	switch {
	case after == nil:
		why = fmt.Sprintf("it is larger than %d MiB", maxFile>>20)
	case was != nil && !was.hashed:
		why = "its old content is not known"
	case was != nil && is != nil && was.info.gitMode()[:3] != is.info.gitMode()[:3]:
		// A file that became a link, or the other way round.
		text = gitDiff(name, was, nil, before, []byte{}) + gitDiff(name, nil, is, []byte{}, after)
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

// maxWithout is how many files a patch names that it leaves out.
const maxWithout = 50

// text is the whole patch, with what to do with it. file is its name.
func (p *patch) text(file string) string {
	var out strings.Builder
	place := "a copy of the workspace"
	switch {
	case p.made:
		place = fmt.Sprintf("an empty folder, for %q, which the run has made", p.repository)
	case p.repository != ".":
		place = fmt.Sprintf("a clone of %q", p.repository)
	}
	fmt.Fprintf(&out, "# Changed files: %d. Apply them in %s:\n#   git apply %s\n", p.files, place, file)
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
// "Generating patch text with -p"). before is nil if it is not known: then the change has the
// form for files that are not text, which needs only the ID of the old content.
func gitDiff(name string, was, is *entry, before, after []byte) string {
	var out strings.Builder
	from, to := quoted("a/"+name), quoted("b/"+name)
	fmt.Fprintf(&out, "diff --git %s %s\n", from, to)
	var old, now blobID // of a file that is not there: zeros
	mode := ""
	switch {
	case was == nil:
		from, now = "/dev/null", is.blob
		fmt.Fprintf(&out, "new file mode %s\n", is.info.gitMode())
	case is == nil:
		to, old = "/dev/null", was.blob
		fmt.Fprintf(&out, "deleted file mode %s\n", was.info.gitMode())
	default:
		old, now = was.blob, is.blob
		if mode = " " + is.info.gitMode(); was.info.gitMode() != is.info.gitMode() {
			fmt.Fprintf(&out, "old mode %s\nnew mode %s\n", was.info.gitMode(), is.info.gitMode())
			mode = ""
		}
	}
	if old == now {
		return out.String() // only its mode changed
	}
	fmt.Fprintf(&out, "index %x..%x%s\n", old, now, mode)
	if before != nil && isText(before) && isText(after) {
		out.WriteString(unifiedDiff(from, to, before, after))
		return out.String()
	}
	out.WriteString("GIT binary patch\n")
	fmt.Fprintf(&out, "literal %d\n", len(after))
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	_, _ = z.Write(after) // into memory
	_ = z.Close()
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

// base85 writes data as Git's binary patches have it: four bytes in five digits.
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

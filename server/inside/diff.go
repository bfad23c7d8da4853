package inside

import (
	"fmt"
	"strings"
)

const (
	diffContext = 3    // lines around a change
	maxEdits    = 1000 // with more edits, the whole differing part is shown as replaced
)

// unifiedDiff is the unified diff of two texts, as `diff -u` and git print it, with the names
// from and to. It is empty if they are the same.
func unifiedDiff(from, to string, before, after []byte) string {
	a, b := splitLines(before), splitLines(after)
	edits := editScript(a, b)
	var out strings.Builder
	for i, h := range hunks(edits) {
		if i == 0 {
			fmt.Fprintf(&out, "--- %s\n+++ %s\n", from, to)
		}
		writeHunk(&out, h, a, b)
	}
	return out.String()
}

// splitLines cuts text after each line feed.
func splitLines(text []byte) []string {
	lines := strings.SplitAfter(string(text), "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// edit is a run of lines: equal in both (a and b advance), deleted (a advances)
// or inserted (b advances).
type edit struct {
	op         byte // ' ', '-', '+'
	a, b, size int  // beginnings in both texts and length, in lines
}

// editScript finds the edits that turn a into b.
func editScript(a, b []string) []edit {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	var all []edit
	add := func(op byte, x, y, size int) {
		if size == 0 {
			return
		}
		if n := len(all); n > 0 && all[n-1].op == op {
			all[n-1].size += size
			return
		}
		all = append(all, edit{op, x, y, size})
	}
	add(' ', 0, 0, head)
	myers(a[head:len(a)-tail], b[head:len(b)-tail], func(op byte, x, y, size int) { add(op, x+head, y+head, size) })
	add(' ', len(a)-tail, len(b)-tail, tail)
	return all
}

// myers is the greedy algorithm of E. Myers, "An O(ND) Difference Algorithm and
// Its Variations" (1986). It gives up after maxEdits.
func myers(a, b []string, add func(op byte, x, y, size int)) {
	n, m := len(a), len(b)
	limit := min(n+m, maxEdits)
	v := make([]int, 2*limit+3) // furthest x on each diagonal, offset by limit+1
	at := func(k int) *int { return &v[k+limit+1] }
	var trace [][]int
	for d := 0; d <= limit; d++ {
		for k := -d; k <= d; k += 2 {
			var x int
			if k == -d || k != d && *at(k - 1) < *at(k + 1) {
				x = *at(k + 1)
			} else {
				x = *at(k - 1) + 1
			}
			for x < n && x-k < m && x-k >= 0 && a[x] == b[x-k] {
				x++
			}
			*at(k) = x
			if x >= n && x-k >= m {
				backtrack(trace, d, n, m, add)
				return
			}
		}
		// The next round needs only the diagonals -d … d of this one.
		trace = append(trace, append([]int(nil), v[limit+1-d:limit+2+d]...))
	}
	add('-', 0, 0, n)
	add('+', n, 0, m)
}

// backtrack follows the trace from the end to the beginning, and returns it in the
// order of the text.
func backtrack(trace [][]int, d, n, m int, add func(op byte, x, y, size int)) {
	type move struct {
		op         byte
		x, y, size int
	}
	var moves []move
	x, y := n, m
	for ; d > 0; d-- {
		last := trace[d-1] // diagonals -(d-1) … d-1
		get := func(k int) int {
			if k < -(d-1) || k > d-1 {
				return -1
			}
			return last[k+d-1]
		}
		k := x - y
		down := k == -d || k != d && get(k-1) < get(k+1)
		fromK := k - 1
		if down {
			fromK = k + 1
		}
		fromX := get(fromK)
		fromY := fromX - fromK
		startX, startY := fromX+1, fromY
		if down {
			startX, startY = fromX, fromY+1
		}
		moves = append(moves, move{' ', startX, startY, x - startX})
		if down {
			moves = append(moves, move{'+', fromX, fromY, 1})
		} else {
			moves = append(moves, move{'-', fromX, fromY, 1})
		}
		x, y = fromX, fromY
	}
	moves = append(moves, move{' ', 0, 0, x})
	for i := len(moves) - 1; i >= 0; i-- {
		add(moves[i].op, moves[i].x, moves[i].y, moves[i].size)
	}
}

// hunks groups the edits with their context.
func hunks(edits []edit) [][]edit {
	var all [][]edit
	var h []edit
	changed := false
	for i, e := range edits {
		if e.op != ' ' {
			h, changed = append(h, e), true
			continue
		}
		first, last := i == 0, i == len(edits)-1
		if changed && (last || e.size > 2*diffContext) {
			tail := e
			tail.size = min(e.size, diffContext)
			all = append(all, append(h, tail))
			h, changed = nil, false
			if last {
				break
			}
		}
		if lead := min(e.size, diffContext); first || !changed && len(h) == 0 {
			h = append(h, edit{' ', e.a + e.size - lead, e.b + e.size - lead, lead})
		} else {
			h = append(h, e)
		}
	}
	if changed {
		all = append(all, h)
	}
	return all
}

func writeHunk(out *strings.Builder, h []edit, a, b []string) {
	oldSize, newSize := 0, 0
	for _, e := range h {
		if e.op != '+' {
			oldSize += e.size
		}
		if e.op != '-' {
			newSize += e.size
		}
	}
	fmt.Fprintf(out, "@@ -%s +%s @@\n", span(h[0].a, oldSize), span(h[0].b, newSize))
	for _, e := range h {
		for i := range e.size {
			line := ""
			if e.op == '+' {
				line = b[e.b+i]
			} else {
				line = a[e.a+i]
			}
			out.WriteByte(e.op)
			out.WriteString(line)
			if !strings.HasSuffix(line, "\n") {
				out.WriteString("\n\\ No newline at end of file\n")
			}
		}
	}
}

// span is the line range of a hunk, as a unified diff writes it. An empty range names the
// line before it.
func span(start, size int) string {
	switch size {
	case 0:
		return fmt.Sprintf("%d,0", start)
	case 1:
		return fmt.Sprintf("%d", start+1)
	}
	return fmt.Sprintf("%d,%d", start+1, size)
}

package dashboard

import (
	"slices"
	"strings"
)

// maxCompared is how many pairs of lines sameLines compares. With more pairs, everything
// between the equal beginning and the equal end counts as different.
const maxCompared = 4_000_000

// sameLines are the lines of a longest common subsequence: the number of each in a and in b.
func sameLines(a, b []string) (pairs [][2]int) {
	begin := 0
	for begin < min(len(a), len(b)) && a[begin] == b[begin] {
		pairs = append(pairs, [2]int{begin, begin})
		begin++
	}
	end := 0
	for end < min(len(a), len(b))-begin && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	x, y := a[begin:len(a)-end], b[begin:len(b)-end]
	if len(x)*len(y) > maxCompared {
		x, y = nil, nil
	}
	common := make([][]int32, len(x)+1) // lengths of the longest common subsequences of the rests
	for i := range common {
		common[i] = make([]int32, len(y)+1)
	}
	for i := len(x) - 1; i >= 0; i-- {
		for j := len(y) - 1; j >= 0; j-- {
			if x[i] == y[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(x) && j < len(y); {
		switch {
		case x[i] == y[j]:
			pairs = append(pairs, [2]int{begin + i, begin + j})
			i, j = i+1, j+1
		case common[i+1][j] >= common[i][j+1]:
			i++
		default:
			j++
		}
	}
	for ; end > 0; end-- {
		pairs = append(pairs, [2]int{len(a) - end, len(b) - end})
	}
	return pairs
}

// hunk is a place of a text where somebody changed lines since the base.
type hunk struct {
	Line               int // the number of its first line in the base
	Base, Theirs, Mine []string
	They, You          bool // who changed it
	Clash              bool // both, and not alike
}

// mergedText is what a person and others made of a text.
type mergedText struct {
	Both  string // with all changes; at a clash theirs and then mine
	Mine  string // the same, at a clash only mine
	Hunks []hunk
	Clash bool // there is a clash
}

// mergeLines joins two changes of a text. Changes of lines that stand beside each other clash, as in
// Git, because they are often about the same thing.
func mergeLines(base, theirs, mine string) (m mergedText) {
	b, t, y := strings.Split(base, "\n"), strings.Split(theirs, "\n"), strings.Split(mine, "\n")
	inTheirs, inMine := make(map[int]int), make(map[int]int)
	for _, same := range sameLines(b, t) {
		inTheirs[same[0]] = same[1]
	}
	for _, same := range sameLines(b, y) {
		inMine[same[0]] = same[1]
	}
	inTheirs[len(b)], inMine[len(b)] = len(t), len(y)
	var both, only []string
	i, j, k := 0, 0, 0
	for at := 0; at <= len(b); at++ {
		toTheirs, kept := inTheirs[at]
		toMine, kept2 := inMine[at]
		if !kept || !kept2 {
			continue
		}
		h := hunk{Line: i + 1, Base: b[i:at], Theirs: t[j:toTheirs], Mine: y[k:toMine]}
		h.They, h.You = !slices.Equal(h.Base, h.Theirs), !slices.Equal(h.Base, h.Mine)
		h.Clash = h.They && h.You && !slices.Equal(h.Theirs, h.Mine)
		if h.They && !h.Clash {
			both, only = append(both, h.Theirs...), append(only, h.Theirs...)
		} else {
			if h.Clash {
				both = append(both, h.Theirs...)
			}
			both, only = append(both, h.Mine...), append(only, h.Mine...)
		}
		if h.They || h.You {
			m.Hunks, m.Clash = append(m.Hunks, h), m.Clash || h.Clash
		}
		if at < len(b) {
			both, only = append(both, b[at]), append(only, b[at])
		}
		i, j, k = at+1, toTheirs+1, toMine+1
	}
	m.Both, m.Mine = strings.Join(both, "\n"), strings.Join(only, "\n")
	return m
}

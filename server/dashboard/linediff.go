package dashboard

import "strings"

// changedLine is a line of a difference: mark is +, - or a space.
type changedLine struct {
	Mark string
	Text string
}

// maxCompared is how many pairs of lines compareLines compares. With more pairs, everything
// between the equal beginning and the equal end counts as different.
const maxCompared = 4_000_000

// compareLines are the different lines of two texts, with marks, and 2 equal lines around them.
func compareLines(from, to string) []changedLine {
	a, b := strings.Split(strings.TrimSuffix(from, "\n"), "\n"), strings.Split(strings.TrimSuffix(to, "\n"), "\n")
	begin := 0
	for begin < min(len(a), len(b)) && a[begin] == b[begin] {
		begin++
	}
	end := 0
	for end < min(len(a), len(b))-begin && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	var all []changedLine
	add := func(mark string, lines ...string) {
		for _, line := range lines {
			all = append(all, changedLine{mark, line})
		}
	}
	add(" ", a[:begin]...)
	x, y := a[begin:len(a)-end], b[begin:len(b)-end]
	if len(x)*len(y) > maxCompared {
		add("-", x...)
		add("+", y...)
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
	i, j := 0, 0
	for i < len(x) || j < len(y) {
		switch {
		case i < len(x) && j < len(y) && x[i] == y[j]:
			add(" ", x[i])
			i, j = i+1, j+1
		case j == len(y) || i < len(x) && common[i+1][j] >= common[i][j+1]:
			add("-", x[i])
			i++
		default:
			add("+", y[j])
			j++
		}
	}
	add(" ", a[len(a)-end:]...)
	return aroundChanges(all, 2)
}

// aroundChanges leaves out equal lines that are far from different lines. A line with an empty mark
// stands for them.
func aroundChanges(all []changedLine, context int) (kept []changedLine) {
	near := make([]bool, len(all))
	for i, line := range all {
		if line.Mark != " " {
			for k := max(0, i-context); k <= min(len(all)-1, i+context); k++ {
				near[k] = true
			}
		}
	}
	for i, line := range all {
		if near[i] {
			kept = append(kept, line)
		} else if i == 0 || near[i-1] {
			kept = append(kept, changedLine{})
		}
	}
	return kept
}

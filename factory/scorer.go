package factory

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"triphammer/schema"
)

// maxLabels bounds the labels of a scorer.
const maxLabels = 20

// scorers checks every scorer (factory/testdata/rules 1.8). This server
// does not act on them.
func (l *loader) scorers() {
	for _, d := range l.of("scorer") {
		n := d.Root
		if strings.TrimSpace(d.Body) == "" {
			d.Error(schema.At{}, schema.MissingRequired, "write the rubric below the keys", "the scorer has no rubric")
		}
		for _, agent := range itemsOf(n.Get("agents")) {
			l.agentNamed(d, agent)
		}
		if rate := n.Get("samplingRate"); rate != nil {
			if percent, ok := numberOf(rate); ok && !(math.Round(percent*100) >= 1 && math.Round(percent*100) <= 10_000) {
				d.Error(rate.At, schema.InvalidValue, "write enabled: false to score nothing", fmt.Sprintf("samplingRate is %s where 0.01 to 100 percent is expected", rate.Text))
			}
		}
		checkLabels(d)
	}
}

func checkLabels(d *document) {
	labels := itemsOf(d.Root.Get("labels"))
	if len(labels) > maxLabels {
		d.Error(labels[maxLabels].At, schema.InvalidValue, "take this one out", fmt.Sprintf("a scorer has at most %d labels", maxLabels))
	}
	passing, bounded := fraction(d, d.Root.Get("passingScore"), "passingScore")
	above, below, complete := false, false, len(labels) > 0
	seen := make(map[string]bool)
	for i, label := range labels {
		if value := label.Get("value"); textOf(value) != "" {
			text := strings.TrimSpace(value.Text)
			if seen[text] {
				d.Error(value.At, schema.DuplicateKey, "take one of them out", fmt.Sprintf("label %q is there twice", text))
			}
			seen[text] = true
		}
		score, ok := fraction(d, label.Get("score"), fmt.Sprintf("labels[%d].score", i))
		complete = complete && ok
		above, below = above || score >= passing, below || score < passing
	}
	if bounded && complete && !(above && below) {
		d.Error(d.Root.Get("passingScore").At, schema.InvalidValue, "change it, or a label's score", "passingScore needs a label that reaches it and one that does not")
	}
}

// fraction reads a number from 0 to 1. It returns false if there is no number.
func fraction(d *document, n *schema.Node, name string) (float64, bool) {
	f, ok := numberOf(n)
	if ok && !(f >= 0 && f <= 1) {
		d.Error(n.At, schema.InvalidValue, "write such as 0.5", fmt.Sprintf("%s is %s where 0 to 1 is expected", name, n.Text))
		return 0, false
	}
	return f, ok
}

func numberOf(n *schema.Node) (float64, bool) {
	if n == nil || n.Kind != schema.Int && n.Kind != schema.Float {
		return 0, false
	}
	f, err := strconv.ParseFloat(n.Text, 64)
	if err != nil { // out of range: infinite, or as good as zero
		f = math.Inf(1)
	}
	return f, true
}

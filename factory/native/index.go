package native

import (
	"slices"
	"strings"
)

// Index is many triggers, compiled. One reading of a delivery finds all triggers that it
// fires. Each trigger waits for the values of one of its filters (see arrange), and the
// delivery's values are looked up among these. So the cost depends on the delivery, not on
// the number of triggers.
//
// An Index is immutable and safe for concurrent use.
type Index struct {
	triggers []*Trigger
	sets     [][]set // the filters of each trigger
	events   []*eventIndex
}

// set is a filter whose values are looked up.
type set struct {
	*Filter
	in, notIn map[string]bool
	column    int // of the event's values
}

// eventIndex is the triggers of one event.
type eventIndex struct {
	event   *Event
	columns []*column
	always  []int // triggers that wait for no value
}

// column is one source of values that triggers of an event look at.
type column struct {
	Filter                    // of any trigger; only key and named count
	waiting  map[string][]int // by value: the triggers that wait for the value
	patterns *patterns        // only for a key of the kind Word or Glob
}

// NewIndex compiles triggers of one sender.
func NewIndex(triggers []*Trigger) *Index {
	x := &Index{triggers: triggers, sets: make([][]set, len(triggers))}
	of := make(map[*Event]*eventIndex)
	for n, t := range triggers {
		e := of[t.Event]
		if e == nil {
			e = &eventIndex{event: t.Event}
			of[t.Event] = e
			x.events = append(x.events, e)
		}
		for i := range t.Filters {
			f := &t.Filters[i]
			s := set{Filter: f, in: setOf(f.In), notIn: setOf(f.NotIn), column: e.column(f)}
			if p := e.columns[s.column].patterns; p != nil {
				p.add(f.In)
				p.add(f.NotIn)
			}
			x.sets[n] = append(x.sets[n], s)
		}
	}
	x.arrange(of)
	return x
}

func setOf(values []string) map[string]bool {
	all := make(map[string]bool, len(values))
	for _, v := range values {
		all[v] = true
	}
	return all
}

func (e *eventIndex) column(f *Filter) int {
	i := slices.IndexFunc(e.columns, func(c *column) bool { return c.Key == f.Key && c.Named == f.Named })
	if i >= 0 {
		return i
	}
	c := &column{Filter: Filter{Key: f.Key, Named: f.Named}, waiting: make(map[string][]int)}
	if f.Key.Kind == Word || f.Key.Kind == Glob {
		c.patterns = newPatterns(f.Key.Kind)
	}
	e.columns = append(e.columns, c)
	return len(e.columns) - 1
}

// arrange makes each trigger wait for the values of one of its filters, so that a delivery
// evaluates the trigger only if it has one of the values. Any filter with values would be
// correct. The best filter is the one whose most wanted value the fewest triggers want.
func (x *Index) arrange(of map[*Event]*eventIndex) {
	type value struct {
		column *column
		value  string
	}
	uses := make(map[value]int)
	for n := range x.triggers {
		for _, s := range x.sets[n] {
			for v := range s.in {
				uses[value{of[x.triggers[n].Event].columns[s.column], v}]++
			}
		}
	}
	for n, t := range x.triggers {
		e := of[t.Event]
		best, fewest := -1, 0
		for i, s := range x.sets[n] {
			if len(s.in) == 0 || s.asks() {
				continue
			}
			most := 0
			for v := range s.in {
				most = max(most, uses[value{e.columns[s.column], v}])
			}
			if best < 0 || most < fewest {
				best, fewest = i, most
			}
		}
		if best < 0 {
			e.always = append(e.always, n)
			continue
		}
		c := e.columns[x.sets[n][best].column]
		for v := range x.sets[n][best].in {
			c.waiting[v] = append(c.waiting[v], n)
		}
	}
}

// Open is a trigger whose other conditions hold, so that an answer of the sender's API decides.
type Open struct {
	Trigger   int
	Questions []Question
}

// Match appends the numbers of the triggers that a delivery fires to dst, ascending. It also
// returns the triggers that open questions decide.
func (x *Index) Match(p *Payload, dst []int) ([]int, []Open) {
	from := len(dst)
	var open []Open
	for _, e := range x.events {
		if !e.event.in(p) {
			continue
		}
		rows := make([]row, len(e.columns))
		woken := slices.Clone(e.always)
		for i, c := range e.columns {
			rows[i].values, rows[i].open = c.values(p)
			rows[i].met = rows[i].values
			if c.patterns != nil {
				rows[i].met = c.patterns.met(rows[i].values)
			}
			for _, v := range rows[i].met {
				woken = append(woken, c.waiting[v]...)
			}
		}
		slices.Sort(woken)
		for _, n := range slices.Compact(woken) {
			questions, ok := x.accepts(n, rows)
			if s := x.triggers[n].StartedBy; ok && s != nil {
				may, open, who, _ := e.event.admits(s, p)
				ok, questions = may || len(open) > 0 || s.lets(who), append(questions, open...)
			}
			switch {
			case ok && len(questions) == 0:
				dst = append(dst, n)
			case ok:
				open = append(open, Open{n, questions})
			}
		}
	}
	slices.Sort(dst[from:])
	return dst, open
}

// row is what a delivery has in a column.
type row struct {
	values []string
	met    []string // the wanted values that the delivery's values meet
	open   *Question
}

// accepts tells whether the filters of a trigger hold, apart from filters that need an answer
// to one of the questions.
func (x *Index) accepts(n int, rows []row) (questions []Question, ok bool) {
	for i := range x.sets[n] {
		s := &x.sets[n][i]
		r := &rows[s.column]
		if r.open != nil {
			if !slices.Contains(questions, *r.open) {
				questions = append(questions, *r.open)
			}
			continue
		}
		if s.Key.Both && len(r.values) == 0 || len(s.in) > 0 && !anyIn(r.met, s.in) || anyIn(r.met, s.notIn) {
			return nil, false
		}
	}
	return questions, true
}

func anyIn(values []string, set map[string]bool) bool {
	return len(set) > 0 && slices.ContainsFunc(values, func(v string) bool { return set[v] })
}

// patterns are the keywords or the path patterns of many triggers. A pattern is looked up by
// its beginning, so that a text or a path is compared with few patterns.
type patterns struct {
	kind  Kind
	known map[string]bool
	by    map[string][]string // keywords by their first bytes; path patterns by the folders before the first mark
	sizes []int               // of the keys of by, for keywords
}

// keywordStart is the number of bytes by which a keyword is looked up, if it is that long.
const keywordStart = 4

func newPatterns(kind Kind) *patterns {
	return &patterns{kind: kind, known: make(map[string]bool), by: make(map[string][]string)}
}

func (p *patterns) add(all []string) {
	for _, pattern := range all {
		if p.known[pattern] {
			continue
		}
		p.known[pattern] = true
		start := pattern[:min(len(pattern), keywordStart)]
		if p.kind == Glob {
			start = literalFolders(pattern)
		} else if !slices.Contains(p.sizes, len(start)) {
			p.sizes = append(p.sizes, len(start))
		}
		p.by[start] = append(p.by[start], pattern)
	}
}

// literalFolders are the folders at the beginning of every path that a pattern matches.
func literalFolders(pattern string) string {
	if i := strings.IndexAny(pattern, `*?[{\`); i >= 0 {
		pattern = pattern[:i]
	}
	return pattern[:strings.LastIndexByte(pattern, '/')+1]
}

// met are the patterns that any of the values meets.
func (p *patterns) met(values []string) []string {
	found := make(map[string]bool)
	var all []string
	for _, value := range values {
		p.candidates(value, func(pattern string) {
			if !found[pattern] && (&Key{Kind: p.kind}).meets(pattern, value) {
				found[pattern] = true
				all = append(all, pattern)
			}
		})
	}
	return all
}

// candidates visits the patterns that begin like a part of the value. It may visit a pattern
// several times.
func (p *patterns) candidates(value string, visit func(pattern string)) {
	for i := range len(value) + 1 {
		if p.kind == Glob {
			if i == 0 || value[i-1] == '/' {
				for _, pattern := range p.by[value[:i]] {
					visit(pattern)
				}
			}
			continue
		}
		for _, size := range p.sizes {
			if i+size > len(value) {
				continue
			}
			for _, pattern := range p.by[value[i:i+size]] {
				if strings.HasPrefix(value[i:], pattern) {
					visit(pattern)
				}
			}
		}
	}
}

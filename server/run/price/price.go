// Package price has the prices of models (SPEC 25.2): those of this program, with their dates and
// sources, and those that an operator sets in their place.
package price

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"time"

	"triphammer/server/run/task"
)

// Rates are prices in US dollars of a million tokens. A price that is not given is that of what
// comes before it: a token that is read from the cache costs as much as Input, a token that is
// written to it as much as Input, and if it is kept for an hour or longer, as much as CacheWrite.
type Rates struct {
	Input      float64  `json:"input"`
	CacheRead  *float64 `json:"cacheRead"`
	CacheWrite *float64 `json:"cacheWrite"`
	CacheHour  *float64 `json:"cacheHour"`
	Output     float64  `json:"output"`
}

func (r *Rates) of(t task.Tokens) float64 {
	write := or(r.CacheWrite, r.Input)
	return (float64(t.Input)*r.Input + float64(t.CacheRead)*or(r.CacheRead, r.Input) + float64(t.CacheWrite-t.CacheHour)*write +
		float64(t.CacheHour)*or(r.CacheHour, write) + float64(t.Output)*r.Output) / 1e6
}

// dearest is the highest price of a million tokens of input.
func (r *Rates) dearest() float64 {
	return max(r.Input, or(r.CacheRead, 0), or(r.CacheWrite, 0), or(r.CacheHour, 0))
}

func or(price *float64, other float64) float64 {
	if price == nil {
		return other
	}
	return *price
}

func (r *Rates) check() error {
	for name, price := range map[string]*float64{"input": &r.Input, "output": &r.Output, "cacheRead": r.CacheRead, "cacheWrite": r.CacheWrite, "cacheHour": r.CacheHour} {
		if price != nil && !(*price >= 0 && *price <= 1e6) {
			return fmt.Errorf("%s is no price of a million tokens in US dollars: %v", name, *price)
		}
	}
	return nil
}

// Price is the price of a model.
type Price struct {
	Rates
	Answer int64 `json:"answer"` // the most tokens that the model answers with; 0: not known
	Prompt int64 `json:"prompt"` // the most tokens that a request may have; 0: not known
	// Long are the prices of the whole request if its prompt has more tokens than Above.
	Long *struct {
		Rates
		Above int64 `json:"above"`
	} `json:"long"`
	// Then are the prices from a day (UTC) on, such as 2027-01-01.
	Then *struct {
		Rates
		From string `json:"from"`
	} `json:"then"`
}

func (p *Price) rates(prompt int64, at time.Time) *Rates {
	switch {
	case p.Then != nil && at.UTC().Format(time.DateOnly) >= p.Then.From:
		return &p.Then.Rates
	case p.Long != nil && prompt > p.Long.Above:
		return &p.Long.Rates
	}
	return &p.Rates
}

// Cost is what tokens of one request cost at a time, in US dollars.
func (p *Price) Cost(t task.Tokens, at time.Time) float64 { return p.rates(t.Prompt(), at).of(t) }

// Most is what a request of so many tokens of input and output costs at most, in US dollars.
func (p *Price) Most(input, output int64, at time.Time) float64 {
	r := p.rates(input, at)
	return (float64(input)*r.dearest() + float64(output)*r.Output) / 1e6
}

// Affords is how many tokens of output so many US dollars buy beside the input of a request. It
// is below 0 if they do not even buy the input, and math.MaxInt64 if output costs nothing.
func (p *Price) Affords(usd float64, input int64, at time.Time) int64 {
	r := p.rates(input, at)
	left := usd - float64(input)*r.dearest()/1e6
	switch {
	case left < 0:
		return -1
	case r.Output == 0 || left*1e6/r.Output > math.MaxInt32:
		return math.MaxInt64
	}
	return int64(left * 1e6 / r.Output)
}

// Table has the prices of models, by name.
type Table struct{ models map[string]*Price }

// list is the format of a table.
type list []struct {
	Provider string            `json:"provider"`
	Source   string            `json:"source"` // where the prices stand
	Date     string            `json:"date"`   // when they stood there
	Models   map[string]*Price `json:"models"`
}

//go:embed prices.json
var own []byte

// Standard is the table of this program: what the providers take for standard service, per
// token of text and images. Prices of hosted tools, of sound and of other kinds of service are not
// in it. The counts of tokens are from the same sources.
func Standard() *Table {
	t, err := Read(own)
	if err != nil {
		panic(err) // a test reads it
	}
	return t
}

// With is the table with the prices of a file instead of its own. A model with null has no
// price. The error says what is wrong.
func (t *Table) With(file []byte) (*Table, error) {
	more, err := Read(file)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(t.models)
	maps.Copy(all, more.models)
	return &Table{all}, nil
}

// JSON is the table as a file for Read.
func (t *Table) JSON() []byte {
	data, _ := json.Marshal([]map[string]any{{"models": t.models}}) // numbers and text always encode
	return data
}

// Read reads a table that has no prices but those of a file. The error says what is wrong.
func Read(data []byte) (*Table, error) {
	var l list
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return nil, fmt.Errorf("it is no JSON list of prices by provider: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("text follows the list of prices")
	}
	t := &Table{make(map[string]*Price)}
	for i, of := range l {
		if len(of.Models) == 0 {
			return nil, fmt.Errorf("item %d (%q) has no models", i+1, of.Provider)
		}
		for _, name := range slices.Sorted(maps.Keys(of.Models)) {
			p := of.Models[name]
			if _, twice := t.models[name]; twice || name == "" {
				return nil, fmt.Errorf("the model %q stands twice, or has no name", name)
			}
			if err := p.check(); err != nil {
				return nil, fmt.Errorf("the model %q: %w", name, err)
			}
			t.models[name] = p
		}
	}
	return t, nil
}

func (p *Price) check() error {
	if p == nil {
		return nil
	}
	all := []*Rates{&p.Rates}
	if p.Answer < 0 || p.Prompt < 0 {
		return errors.New("answer and prompt are numbers of tokens")
	}
	if p.Long != nil {
		if all = append(all, &p.Long.Rates); p.Long.Above <= 0 {
			return errors.New("long has no number of tokens in above")
		}
	}
	if p.Then != nil {
		all = append(all, &p.Then.Rates)
		if _, err := time.Parse(time.DateOnly, p.Then.From); err != nil {
			return errors.New("then has no day such as 2027-01-01 in from")
		}
	}
	for _, r := range all {
		if err := r.check(); err != nil {
			return err
		}
		if r.Input == 0 && r.Output == 0 && p.Answer == 0 {
			return errors.New("it has no price: input and output are US dollars for a million tokens (to say that a model costs nothing, add answer, the most tokens of an answer)")
		}
	}
	return nil
}

// variant is the end of a model's name that does not change its price: a day, latest, or the mark
// with which Claude Code asks for a longer prompt.
var variant = regexp.MustCompile(`(-20\d{6}|-20\d\d-\d\d-\d\d|-latest|\[1m\])$`)

// Of is the price of a model by its name in requests, with or without a version by day; nil if
// it has none.
func (t *Table) Of(model string) *Price { return t.models[t.Name(model)] }

// Name is what the table calls a model, whatever its version by day; the model's own name if it is not there.
func (t *Table) Name(model string) string {
	for name := model; ; {
		if _, is := t.models[name]; is {
			return name
		}
		short := variant.ReplaceAllString(name, "")
		if short == name {
			return model
		}
		name = short
	}
}

// Models are the names of the models that have a price, sorted.
func (t *Table) Models() []string {
	var names []string
	for name, p := range t.models {
		if p != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

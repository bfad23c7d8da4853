package dashboard

import (
	"html/template"

	"triphammer/applier"
	"triphammer/schema"
	"triphammer/server/store"
)

// Overview is the first page: what each factory serves, and the newest deliveries and
// runs.
type Overview struct {
	Page
	Serves     []Factory
	Deliveries []*store.Delivery
	Runs       []*store.Run
}

// Factory is one factory of the overview.
type Factory struct {
	applier.State
	LastOutcome string // of the newest apply
	LastCommit  string
	Diagnostics schema.Diagnostics // of the newest apply
}

var overview = parse("overview")

func (Overview) template() *template.Template { return overview() }

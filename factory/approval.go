package factory

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"triphammer/factory/native"
	"triphammer/schema"
)

// Approval says what of an automation waits for the decision of a person (SPEC 26.1).
type Approval struct {
	Start     bool          // each run, before it starts
	Outsiders bool          // the runs for people whom startedBy does not list, instead of starting nothing
	Outputs   bool          // what its agents ask for
	Timeout   time.Duration // then it is declined; always set
	Approvers []string      // whose replies decide, as startedBy names people; none: those with write access, where the sender tells
}

// By are those whose replies at a sender decide what waits (SPEC 26.2); nil: nobody's do.
func (a *Approval) By(s *native.Sender) []string {
	if len(a.Approvers) == 0 && s.Comment != nil && s.Comment.By.Suits(native.RoleWrite) {
		return []string{native.RoleWrite}
	}
	return a.Approvers
}

// DefaultApprovalTimeout is Approval.Timeout if the file does not say so.
const DefaultApprovalTimeout = 24 * time.Hour

// approvalTimes are the durations from 5m to 720h that the key approvalTimeout takes, in one unit.
var approvalTimes = regexp.MustCompile(`^(?:(?:[5-9]|[1-9][0-9]{1,3})m|(?:[1-9]|[1-9][0-9]|[1-6][0-9]{2}|7[01][0-9]|720)h)$`)

// approval reads what of an automation waits for a person.
func (l *loader) approval(d *document, a *Automation) {
	list := textsOf(d.Root.Get("approval"))
	a.Approval = Approval{
		Start: slices.Contains(list, "start"), Outsiders: slices.Contains(list, "outsiders"), Outputs: slices.Contains(list, "outputs"), Timeout: DefaultApprovalTimeout,
	}
	if n := d.Root.Get("approvalTimeout"); textOf(n) != "" {
		switch of, err := time.ParseDuration(textOf(n)); {
		case err != nil || !approvalTimes.MatchString(textOf(n)):
			d.Error(n.At, schema.InvalidValue, "approvalTimeout: 24h is an example", fmt.Sprintf("approvalTimeout is %q where minutes or hours are expected, from 5m to 720h", textOf(n)))
		default:
			a.Approval.Timeout = of
		}
		if len(list) == 0 {
			d.Warn(d.Root.KeyAt("approvalTimeout"), schema.NoEffect, "add approval: [start], or outsiders or outputs", "approvalTimeout has no effect: approval does not say what waits for a person")
		}
	}
	for _, item := range itemsOf(d.Root.Get("approvers")) {
		who := strings.TrimSpace(textOf(item))
		if who == native.RoleAuthor {
			d.Warn(item.At, schema.NoEffect, "take it out", "approvers: author has no effect: anybody can be the author of an issue, so the author approves nothing")
			continue
		}
		d.likeRole(item, "approvers")
		a.Approval.Approvers = append(a.Approval.Approvers, who)
	}
	if n := d.Root.Get("approvers"); n != nil && len(list) == 0 && len(a.Outputs) == 0 {
		d.Warn(d.Root.KeyAt("approvers"), schema.NoEffect, "add approval: [start], or outsiders or outputs", "approvers has no effect: approval does not say what waits for a person, and there are no outputs")
	}
	at := d.Root.KeyAt("approval")
	if a.Approval.Outsiders && d.Root.Get("startedBy") == nil {
		d.Error(at, schema.InvalidValue, "add startedBy: [write], or whom you trust", "approval: nobody is an outsider without startedBy, which says who may start the automation")
	}
	if a.Approval.Outputs && len(a.Outputs) == 0 && !l.writable(a) {
		d.Warn(at, schema.NoEffect, "add outputs, or take it out",
			"approval: outputs has no effect: the automation has no outputs, and its environment no repository with a secret and access: write")
	}
}

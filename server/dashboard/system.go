package dashboard

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"triphammer/server/api"
	"triphammer/server/run/event"
	"triphammer/server/store"
)

var systemRoutes = []Route{
	get("/system", systemPage),
	post("/system/clock", store.ScopeManage, acceptClock, "POST /clock/accept"),
	post("/system/check", store.ScopeManage, checkStore, "POST /check"),
}

// System is the page about the health of the server and its machine, like `triphammer doctor`.
type System struct {
	Page
	Status  api.Status
	Checks  []Check
	Notices []api.Notice // notices about runs that could not be delivered
	Report  *api.StoreReport
	Workers []api.Worker
	Backup  *api.AuditEntry // the last backup in the audit log; nil: there is none, or the person may not read the log
}

// State is the state of a worker, for people.
func (System) State(w api.Worker) string {
	return map[string]string{"ready": "Ready", "full": "Full", "blocked": "Blocked", "draining": "Draining", "drained": "Drained", "stopped": "Stopped", "lost": "Lost"}[w.State]
}

// Sort is the kind of the mark of a worker's state.
func (System) Sort(w api.Worker) string {
	switch w.State {
	case "ready", "full":
		return "ok"
	case "blocked", "lost":
		return "fail"
	case "draining":
		return "wait"
	}
	return "none"
}

// Check is one checked thing. Its kind is ok, fail, or none for information.
type Check struct{ Kind, What, Detail string }

var system = parse("system")

func (System) template() *template.Template { return system() }

// Bad are the failed checks.
func (s System) Bad() (all []Check) {
	for _, c := range s.Checks {
		if c.Kind == "fail" {
			all = append(all, c)
		}
	}
	return all
}

// Found are the checks, with the checks of one thing joined.
func (s System) Found() (all []Check) {
	for _, c := range s.Checks {
		if last := len(all) - 1; last >= 0 && c.Kind == "none" && all[last].Kind == c.Kind && all[last].What == c.What {
			all[last].Detail += "\n" + c.Detail
		} else {
			all = append(all, c)
		}
	}
	return all
}

// Text is the report for somebody who helps from elsewhere.
func (s System) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "triphammer %s\n", s.Status.Version)
	for _, c := range s.Checks {
		mark := map[string]string{"ok": "ok", "fail": "BAD", "none": "--"}[c.Kind]
		fmt.Fprintf(&b, "%-4s %-12s %s\n", mark, c.What, c.Detail)
	}
	return b.String()
}

func systemPage(v *Visit) (page System, err error) {
	if page.Page, err = v.Page("System"); err != nil {
		return page, err
	}
	if err = v.Get("/status", &page.Status); err != nil {
		return page, err
	}
	page.Checks = checks(page.Page, page.Status)
	var workers api.WorkerList
	if err = v.Get("/workers", &workers); err != nil {
		return page, err
	}
	page.Workers = workers.Workers
	var notices api.List[api.Notice]
	if err = v.Get("/notices?limit=50", &notices); err != nil {
		return page, err
	}
	if v.Person.May(store.ScopeManage) {
		var sent api.List[api.AuditEntry]
		if err = v.Get("/audit?limit=1&action="+api.BackupSent, &sent); err != nil {
			return page, err
		}
		if len(sent.Entries) > 0 {
			page.Backup = &sent.Entries[0]
		}
	}
	page.Notices = slices.DeleteFunc(notices.Entries, func(n api.Notice) bool { return n.Status == "delivered" })
	return page, nil
}

// checks are the facts of the status about the machine, one check for each.
func checks(page Page, s api.Status) (all []Check) {
	say := func(ok bool, what, detail string) {
		kind := "ok"
		if !ok {
			kind = "fail"
		}
		all = append(all, Check{kind, what, detail})
	}
	note := func(what, detail string) { all = append(all, Check{"none", what, detail}) }
	if m := s.Machine; m != nil {
		say(m.Git != "", "git", cmp.Or(m.Git, "not found; runs clone repositories with it"))
		say(strings.HasPrefix(m.System, "linux/"), "system", m.System)
		workers := "starts no run (--max-runs 0)"
		if m.MaxRuns > 0 {
			workers = plural(m.MaxRuns, "run") + " at once"
		}
		if len(m.WorkerHosts) > 0 {
			workers += ", also those of the worker " + strings.Join(m.WorkerHosts, ", ")
		}
		note("runs", fmt.Sprintf("%s; %d in progress, %d queued", workers, s.Runs[string(store.InProgress)], s.Runs[string(store.Queued)]))
	}
	if i := s.Isolation; i != nil {
		detail := i.Name
		switch {
		case i.Name == "":
			detail = "nothing works here, so no run starts"
		case i.Name == "none":
			detail = "none: agents may do whatever the server's user may"
		}
		if i.User != "" {
			detail += ", as the user " + i.User
		}
		if i.Name == "none" {
			note("isolation", detail)
		} else {
			say(i.Name != "", "isolation", detail)
		}
		for _, lacking := range i.Lacking {
			note("isolation", "without "+lacking)
		}
		note("containers", cmp.Or(i.Containers, "none: runs that demand an image or a container fail"))
		for _, kept := range i.Limits {
			note("limits", kept)
		}
	}
	if m := s.Machine; m != nil {
		for _, h := range m.Harnesses {
			if h.Found {
				say(true, h.Name, "found")
			} else {
				note(h.Name, "not found in PATH: install it where the server runs, if definitions use it")
			}
		}
	}
	for _, p := range s.Storage.Volumes {
		detail := fmt.Sprintf("%s: %s of %s are free", p.Name, event.Bytes(p.FreeBytes), event.Bytes(p.TotalBytes))
		if p.FreeFiles != nil {
			detail += fmt.Sprintf(", and %s inodes", number(*p.FreeFiles))
		}
		note("disk", detail)
	}
	for _, problem := range s.Storage.Problems {
		say(false, "storage", problem)
	}
	if s.Storage.State == "ok" {
		say(true, "storage", "what is written reaches the disk")
	}
	say(s.Clock.Problem == "", "clock", cmp.Or(s.Clock.Problem, "believed"))
	for _, f := range s.Factories {
		switch {
		case f.Empty():
			note("definitions", page.Of(f.Name, api.WaitsForCommit))
		case f.Error != "":
			say(false, "definitions", page.Of(f.Name, f.Error))
		case f.Applied != nil:
			say(true, "definitions", page.Of(f.Name, "commit "+short(f.Applied.Commit)+" serves"))
		}
	}
	return all
}

func acceptClock(v *Visit) (SeeOther, error) {
	return SeeOther{To: "/system", Said: "The clock is believed."}, v.Send("POST", "/clock/accept", nil, nil)
}

// checkStore checks the whole store, and shows the result.
func checkStore(v *Visit) (page System, err error) {
	var report api.StoreReport
	if err = v.Send("POST", "/check", nil, &report); err != nil {
		return page, err
	}
	page, err = systemPage(v)
	page.Report = &report
	return page, err
}

package factory

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"triphammer/schema"
)

// maxConfigurations bounds the configurations of a benchmark suite.
const maxConfigurations = 6

var repoRef = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(github\.com:[^/\s@]+|gitlab\.com:[^/\s@]+(/[^/\s@]+)*)/[^/\s@]+@[0-9a-fA-F]{40}$`)
})

// benchmarks checks every suite and its tasks (factory/testdata/rules
// 1.9). This server does not run them.
func (l *loader) benchmarks() {
	tasks := make(map[string]map[string]*document) // by suite and slug
	for _, d := range l.of("benchmark task") {
		suite, slug, _ := strings.Cut(d.name, "/")
		if tasks[suite] == nil {
			tasks[suite] = make(map[string]*document)
		}
		tasks[suite][slug] = d
		for i, ref := range itemsOf(d.Root.Get("startingRepoRefs")) {
			if text := textOf(ref); text != "" && !repoRef().MatchString(text) {
				d.Error(ref.At, schema.InvalidValue, "write github.com:OWNER/REPO@ and the 40 digits of a commit", fmt.Sprintf("startingRepoRefs[%d] is not a commit of a repository", i))
			}
		}
	}
	named := make(map[string]string)
	for _, d := range l.of("benchmark suite") {
		if name := d.Root.Get("name"); textOf(name) != "" {
			text := strings.TrimSpace(name.Text)
			if first := named[text]; first != "" {
				d.Error(name.At, schema.DuplicateKey, "give it another name", fmt.Sprintf("%s has the name %q already", first, text))
			}
			named[text] = d.Path
		}
		l.suite(d, tasks[d.name])
	}
	for _, d := range l.of("benchmark task") {
		suite, slug, _ := strings.Cut(d.name, "/")
		if tasks[suite][slug] != nil && !l.unread["benchmark suite "+suite] {
			d.Error(schema.At{}, schema.InvalidReference, fmt.Sprintf("add %s to tasks in benchmarks/%s/suite.yaml", slug, suite), "no suite lists this task")
		}
	}
}

// suite checks one suite, and takes the tasks that it lists out of tasks.
func (l *loader) suite(d *document, tasks map[string]*document) {
	if agent := d.Root.Get("agent"); agent != nil {
		l.agentNamed(d, agent)
	}
	configurations := itemsOf(d.Root.Get("configurations"))
	if len(configurations) > maxConfigurations {
		d.Error(configurations[maxConfigurations].At, schema.InvalidValue, "take this one out", fmt.Sprintf("a suite has at most %d configurations", maxConfigurations))
	}
	baseline, seen := false, make(map[string]bool)
	for i, c := range configurations {
		if name := c.Get("name"); textOf(name) != "" {
			text := strings.TrimSpace(name.Text)
			if seen[text] {
				d.Error(name.At, schema.DuplicateKey, "give it another name", fmt.Sprintf("configuration %q is there twice", text))
			}
			seen[text] = true
		}
		if role := c.Get("role"); textOf(role) == "baseline" {
			if baseline {
				d.Error(role.At, schema.InvalidValue, "write role: candidate", "a second baseline: a suite has at most one")
			}
			baseline = true
		}
		for j, agent := range itemsOf(c.Get("agents")) {
			base := l.factory.Defaults
			if a := l.agents[strings.TrimSpace(textOf(agent.Get("agent")))]; a != nil {
				base = a.Settings
			}
			l.settings(d, agent, base, fmt.Sprintf("configurations[%d].agents[%d].", i, j))
		}
	}
	for _, item := range itemsOf(d.Root.Get("tasks")) {
		slug := strings.TrimSpace(textOf(item))
		if slug == "" {
			continue
		}
		if l.places["benchmark task "+d.name+"/"+slug] == "" {
			d.Error(item.At, schema.InvalidReference, "add the file, or take the task out", fmt.Sprintf("there is no benchmarks/%s/tasks/%s.yaml", d.name, slug))
		}
		delete(tasks, slug)
	}
}

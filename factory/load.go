package factory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"triphammer/schema"
)

// Options of Load.
type Options struct {
	// Strict gives the format's own verdict, without our extensions (SPEC 2.1).
	Strict bool
	// Applied tells that the tree was applied before. Rules that are newer than the tree
	// then cause warnings, not errors, so that a newer program still serves it.
	Applied bool
	// MaxFiles and MaxBytes bound the definition files of a tree; 0 means the
	// defaults of SPEC 2.5.
	MaxFiles int
	MaxBytes int64
	// MaxFindings is how many findings are reported; 0 means DefaultMaxFindings. If
	// there are more, the last finding says how many.
	MaxFindings int
}

// Load reads the tree whose root holds factory.yaml. It returns an error only if the
// tree cannot be read. Findings are in the report, and the factory is complete if the
// report has no error.
func Load(ctx context.Context, tree fs.FS, opt Options) (*Factory, *schema.Report, error) {
	l := &loader{
		ctx: ctx, tree: tree, opt: opt,
		factory: &Factory{blobs: make(map[string]string)},
		report:  &schema.Report{SchemaVersion: schema.Version},
		places:  make(map[string]string),
		unread:  make(map[string]bool),

		agents:       make(map[string]*Agent),
		environments: make(map[string]*Environment),
		listings:     make(map[string]map[string]fs.DirEntry),
		payloads:     make(map[string][]byte),
		skillTexts:   make(map[string][]byte),
	}
	l.opt.MaxFiles = cmp.Or(l.opt.MaxFiles, DefaultMaxFiles)
	l.opt.MaxBytes = cmp.Or(l.opt.MaxBytes, DefaultMaxBytes)
	l.opt.MaxFindings = cmp.Or(l.opt.MaxFindings, DefaultMaxFindings)
	l.budget = schema.NewBudget(l.opt.MaxFindings)
	if err := l.load(); err != nil {
		return nil, nil, err
	}
	if rest, more := l.budget.Rest("factory.yaml"); more {
		l.report.Diagnostics = append(l.report.Diagnostics, rest)
	}
	if l.report.Diagnostics.Sort(); !l.report.Diagnostics.HasErrors() {
		l.definitions()
	}
	l.report.Files = l.factory.Files
	slices.SortFunc(l.report.Deferred, func(a, b schema.Deferred) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Name, b.Name))
	})
	l.report.Deferred = slices.Compact(l.report.Deferred)
	if more := len(l.report.Deferred) - l.opt.MaxFindings; more > 0 {
		l.report.Deferred = l.report.Deferred[:l.opt.MaxFindings]
		l.report.Diagnostics = append(l.report.Diagnostics, schema.Diagnostic{
			Code: schema.TooMany, Severity: schema.Warning, Path: "factory.yaml",
			Message: fmt.Sprintf("%d more names that only a server can check are left out", more),
		})
		l.report.Diagnostics.Sort()
	}
	return l.factory, l.report, nil
}

type loader struct {
	ctx     context.Context
	tree    fs.FS
	opt     Options
	factory *Factory
	report  *schema.Report
	bytes   int64
	places  map[string]string // kind and name to path: one place per resource
	unread  map[string]bool   // kind and name of files that could not be read; naming one of them is no error
	listed  []listed          // definition files, read when all are known
	links   []listed          // links in the place of environments
	wants   map[string]bool   // names of environments that definitions name
	entries int               // files and folders that were listed
	docs    []*document
	nodes   int // keys and values of all docs
	budget  *schema.Budget

	// The rules look names up in these, and fill them as they go.
	agents       map[string]*Agent
	foreman      *Agent
	environments map[string]*Environment
	automations  map[string]bool
	attached     []attached
	listings     map[string]map[string]fs.DirEntry // of folders, by name
	payloads     map[string][]byte
	skillTexts   map[string][]byte // of the files of skills, by path
}

// listed is a definition file that was found.
type listed struct {
	kind           *kind
	resource, name string
	info           fs.FileInfo
}

// document is a definition file that could be parsed.
type document struct {
	kind *kind
	name string
	*schema.Document
	*schema.Collector
}

// kind is a kind of definition file.
type kind struct {
	id      string
	folder  string
	pattern string // of its path, for people
	shape   *schema.Shape
	text    string // what the text of a Markdown file is, for messages
	own     bool   // our extension: a stray file under Strict
	// name is the name of the definition at a path within the folder; "" if a file of
	// this kind cannot be there.
	name func(rest string) string
	// misplaced tells whether a path within the folder looks like this kind.
	misplaced func(rest string) bool
}

func inFolder(file string) func(string) string {
	return func(rest string) string {
		if dir, base := path.Split(rest); base == file && strings.Count(rest, "/") == 1 {
			return strings.TrimSuffix(dir, "/")
		}
		return ""
	}
}

func flat(ext string) func(string) string {
	return func(rest string) string {
		name, ok := strings.CutSuffix(rest, ext)
		if !ok || strings.Contains(name, "/") || name == "." || name == ".." {
			return ""
		}
		return name
	}
}

func based(file string) func(string) bool {
	return func(rest string) bool { return path.Base(rest) == file }
}

func topLevel(ext string) func(string) bool {
	return func(rest string) bool { return path.Ext(rest) == ext && !strings.Contains(rest, "/") }
}

func withExt(ext string) func(string) bool {
	return func(rest string) bool { return path.Ext(rest) == ext }
}

var kinds = []*kind{
	{id: "agent", folder: "agents", pattern: "agents/NAME/agent.md", shape: &schema.Agent, text: "prompt", name: inFolder("agent.md"), misplaced: based("agent.md")},
	{id: "automation", folder: "automations", pattern: "automations/NAME/automation.md", shape: &schema.Automation, text: "prompt", name: func(rest string) string {
		if name := inFolder("automation.md")(rest); name != "" {
			return name
		}
		return flat(".md")(rest) // the legacy form
	}, misplaced: func(rest string) bool { return path.Base(rest) == "automation.md" || topLevel(".md")(rest) }},
	{id: "runner", folder: "runners", pattern: "runners/NAME.yaml", shape: &schema.Runner, name: flat(".yaml"), misplaced: withExt(".yaml")},
	{id: "webhook", folder: "webhooks", pattern: "webhooks/NAME.yaml", shape: &schema.Webhook, name: flat(".yaml"), misplaced: withExt(".yaml")},
	{id: "scorer", folder: "scorers", pattern: "scorers/NAME/scorer.md", shape: &schema.Scorer, text: "rubric", name: inFolder("scorer.md"), misplaced: func(rest string) bool {
		return path.Base(rest) == "scorer.md" || topLevel(".md")(rest)
	}},
	{id: "benchmark suite", folder: "benchmarks", pattern: "benchmarks/NAME/suite.yaml", shape: &schema.BenchmarkSuite, name: inFolder("suite.yaml"), misplaced: based("suite.yaml")},
	{id: "benchmark task", folder: "benchmarks", pattern: "benchmarks/SUITE/tasks/NAME.yaml", shape: &schema.BenchmarkTask, name: func(rest string) string {
		if parts := strings.Split(rest, "/"); len(parts) == 3 && parts[1] == "tasks" && flat(".yaml")(parts[2]) != "" {
			return parts[0] + "/" + flat(".yaml")(parts[2])
		}
		return ""
	}, misplaced: func(rest string) bool {
		parts := strings.Split(rest, "/")
		return len(parts) == 3 && parts[1] == "tasks" && path.Ext(parts[2]) == ".yaml"
	}},
	{id: "environment", folder: "environments", pattern: "environments/NAME.yaml", shape: &schema.Environment, own: true, name: flat(".yaml"), misplaced: withExt(".yaml")},
	{id: "filter test", folder: "tests", pattern: "tests/NAME.yaml", shape: &schema.Tests, own: true, name: flat(".yaml"), misplaced: func(string) bool { return false }},
}

// foldersOf are the folders in which each definition is a folder of its own.
var foldersOf = map[string]bool{"agents": true, "automations": true, "scorers": true, "benchmarks": true}

var errStop = errors.New("enough")

func (l *loader) load() error {
	c := l.collector("factory.yaml")
	var data []byte
	info, err := l.lstat("factory.yaml")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		hint := "the definition tree is the folder that holds factory.yaml"
		if _, err := l.lstat("factory.yml"); err == nil {
			hint = "name factory.yml factory.yaml"
		}
		c.Error(schema.At{}, schema.MissingFactory, hint, "there is no factory.yaml")
	case err != nil:
		return err
	default:
		if data, err = l.read(c, "factory.yaml", info); errors.Is(err, errStop) {
			l.report.Partial = true
			return nil
		} else if err != nil {
			return err
		}
	}
	root := l.document(c, &kind{id: "factory", shape: &schema.Factory}, "factory", data)
	if root != nil {
		if version := textOf(root.Root.Get("schemaVersion")); version != "" && len(version) <= maxVersion {
			l.report.SchemaVersion = version
		}
	}
	if root != nil && !l.supported(root) {
		l.report.Partial = true
		l.report.Diagnostics = append(l.report.Diagnostics, c.Found...)
		return nil
	}
	folders, stopped := make(map[string]bool), false
	for _, k := range kinds {
		if folders[k.folder] || k.own && l.opt.Strict {
			continue
		}
		folders[k.folder] = true
		if err := l.walk(k.folder); errors.Is(err, errStop) {
			stopped = true // the files that were read may name files that were not
			break
		} else if err != nil {
			return err
		}
	}
	for _, f := range l.listed {
		if stopped {
			break
		}
		if err := l.add(f.kind, f.resource, f.name, f.info); errors.Is(err, errStop) {
			stopped = true
		} else if err != nil {
			return err
		}
	}
	if l.report.Partial = stopped; !stopped {
		l.linked()
		if !l.opt.Strict {
			if err := l.skills(); err != nil {
				return err
			}
		}
		l.build(root)
	}
	if root == nil {
		l.report.Diagnostics = append(l.report.Diagnostics, c.Found...)
	}
	for _, d := range l.docs {
		l.report.Diagnostics = append(l.report.Diagnostics, d.Found...)
	}
	slices.Sort(l.factory.Files)
	return nil
}

// supported tells whether the schemaVersion is known. If it is not, nothing else is checked.
func (l *loader) supported(root *document) bool {
	for _, d := range root.Found {
		if d.Code == schema.UnsupportedVersion {
			root.Found = schema.Diagnostics{d}
			return false
		}
	}
	return true
}

func (l *loader) walk(folder string) error {
	info, err := l.lstat(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("reading %s: %w", folder, err)
	case !info.IsDir():
		if !info.Mode().IsRegular() {
			l.notTheFolder(folder)
		}
		return nil
	}
	// The checkout of a submodule, or of any other repository, is no part of a
	// commit: there it is a link, or nothing.
	other := ""
	return fs.WalkDir(l.tree, folder, func(name string, d fs.DirEntry, err error) error {
		if err := cmp.Or(err, l.ctx.Err()); err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		rest := strings.TrimPrefix(strings.TrimPrefix(name, folder), "/")
		if l.entries++; l.entries > maxEntries {
			l.fault(folder, schema.TooMany, "move what is no definition elsewhere", fmt.Sprintf("more than %d files and folders where definitions are", maxEntries))
			return errStop
		}
		if !utf8.ValidString(name) && folder == environments {
			l.strayed(strings.ToValidUTF8(name, "\ufffd"), schema.At{}, "its name is not UTF-8")
			return past(d)
		}
		if !utf8.ValidString(name) {
			l.fault(strings.ToValidUTF8(name, "\ufffd"), schema.UnsupportedPath, "rename it", "the name is not UTF-8")
			return past(d)
		}
		switch {
		case other != "" && strings.HasPrefix(name, other):
			return past(d)
		case rest == ".git":
			l.notTheFolder(folder)
			return fs.SkipAll
		case path.Base(rest) == ".git":
			other = path.Dir(name) + "/"
			l.notTheFile(folder, path.Dir(rest), path.Dir(name))
			return past(d)
		}
		if d.IsDir() {
			if agent, base := path.Split(rest); folder == "agents" && base == "skills" && strings.Count(agent, "/") == 1 {
				return fs.SkipDir
			}
			if strings.Count(name, "/") >= maxFolders {
				l.fault(name, schema.TooDeep, "move what is no definition elsewhere", fmt.Sprintf("a folder within %d others", maxFolders))
				return errStop
			}
			return nil
		}
		return l.list(folder, rest, name, d)
	})
}

// past makes a walk go on behind a file or a folder.
func past(d fs.DirEntry) error {
	if d.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// list notes a file that is a definition, and reports another file that should not be there.
// rest is the path of the file below the folder.
func (l *loader) list(folder, rest, name string, d fs.DirEntry) error {
	if !d.Type().IsRegular() {
		l.notTheFile(folder, rest, name)
		return nil
	}
	k, resource := place(folder, rest)
	switch {
	case k == nil:
		l.stray(folder, rest, name)
		return nil
	case resource == "" && folder == environments:
		l.strayed(name, schema.At{}, "an environment is "+k.pattern)
		return nil
	case resource == "":
		l.fault(name, schema.UnsupportedPath, "move it to "+k.pattern, fmt.Sprintf("this looks like %s %s, and none can be here", article(k.id), k.id))
		return nil
	}
	info, err := d.Info()
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	if l.listed = append(l.listed, listed{k, resource, name, info}); len(l.listed) >= l.opt.MaxFiles { // with factory.yaml one more
		l.fault("factory.yaml", schema.TooMany, splitHint, fmt.Sprintf("the tree has more than %d definition files", l.opt.MaxFiles))
		return errStop
	}
	return nil
}

// environments is a folder that a repository may have for other purposes. So a broken
// file in it is an error only if a definition names it (SPEC 2.1).
const environments = "environments"

// wanted tells whether a definition names the environment, or any environment if the
// name is empty. It is called after all other definitions have been read.
func (l *loader) wanted(name string) bool {
	if l.wants == nil {
		l.wants = make(map[string]bool)
		for _, d := range l.docs {
			n := d.Root
			switch d.kind.id {
			case "factory":
				n = n.Get("agentDefaults")
			case "agent", "automation":
			default:
				continue
			}
			if text := textOf(n.Get("environmentId")); text != "" {
				l.wants[text], l.wants[""] = true, true
			}
		}
	}
	return l.wants[name]
}

// ignored warns of a file that is no environment and that no definition names.
func (l *loader) ignored(c *schema.Collector) {
	first := schema.Diagnostic{Message: "it is not valid"}
	if len(c.Found) > 0 {
		first = c.Found[0]
	}
	l.strayed(c.Path, schema.At{Line: first.Line, Column: first.Column}, first.Message)
}

func (l *loader) strayed(name string, at schema.At, why string) {
	c := l.collector(name)
	c.Warn(at, schema.StrayFile, "mend it if it is meant as an environment", "this file is ignored, for no definition names it: "+why)
	l.report.Diagnostics = append(l.report.Diagnostics, c.Found...)
}

// linked reports the links in the place of environments.
func (l *loader) linked() {
	for _, f := range l.links {
		if l.wanted(f.resource) {
			l.fault(f.name, schema.NotRegular, "put the file itself there", "a symbolic link, submodule or special file in a definition's place")
			l.unread["environment "+f.resource] = true
		} else {
			l.strayed(f.name, schema.At{}, "it is a symbolic link, submodule or special file")
		}
	}
}

func (l *loader) notTheFolder(folder string) {
	if folder == environments {
		l.links = append(l.links, listed{name: folder})
		return
	}
	l.fault(folder, schema.NotRegular, "put the folder itself there", "a symbolic link or submodule in the place of a folder of definitions")
}

// notTheFile reports a link or submodule where a definition, or a folder of them,
// would be.
func (l *loader) notTheFile(folder, rest, name string) {
	k, resource := place(folder, rest)
	if folder == environments {
		if resource != "" {
			l.links = append(l.links, listed{resource: resource, name: name})
		}
		return
	}
	if k == nil && (!foldersOf[folder] || strings.Contains(rest, "/")) {
		return
	}
	if resource != "" {
		l.unread[k.id+" "+resource] = true
	}
	l.fault(name, schema.NotRegular, "put the file itself there", "a symbolic link, submodule or special file in a definition's place")
}

func article(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an"
	}
	return "a"
}

// place finds the kind of a file; without a name it is misplaced.
func place(folder, rest string) (k *kind, name string) {
	for _, k := range kinds {
		if k.folder == folder {
			if name := k.name(rest); name != "" {
				return k, name
			}
		}
	}
	for _, k := range kinds {
		if k.folder == folder && k.misplaced(rest) {
			return k, ""
		}
	}
	return nil, ""
}

// stray warns of a file that is likely meant as a definition.
func (l *loader) stray(folder, rest, name string) {
	if l.opt.Strict {
		return
	}
	c := l.collector(name)
	if base, ok := strings.CutSuffix(rest, ".yml"); ok {
		if k, _ := place(folder, base+".yaml"); k != nil {
			c.Warn(schema.At{}, schema.StrayFile, "name it "+path.Base(base)+".yaml", "a file that ends in .yml is not read")
		}
	}
	if agent := flat(".md")(rest); agent != "" && folder == "agents" && !strings.EqualFold(rest, "README.md") {
		c.Warn(schema.At{}, schema.StrayFile, "an agent is agents/"+agent+"/agent.md", "this file is not read")
	}
	if dir, base := path.Split(rest); strings.Count(rest, "/") == 1 {
		for _, k := range kinds {
			want := path.Base(k.pattern)
			if k.folder == folder && k.name(dir+want) != "" && base != want && strings.EqualFold(stem(base), stem(want)) && path.Ext(base) != ".yml" {
				c.Warn(schema.At{}, schema.StrayFile, "name it "+want, fmt.Sprintf("this file is not read: %s %s is %s", article(k.id), k.id, folder+"/"+dir+want))
			}
		}
	}
	l.report.Diagnostics = append(l.report.Diagnostics, c.Found...)
}

func stem(base string) string { return strings.TrimSuffix(base, path.Ext(base)) }

func (l *loader) fault(name, code, hint, message string) {
	c := l.collector(name)
	c.Error(schema.At{}, code, hint, message)
	l.report.Diagnostics = append(l.report.Diagnostics, c.Found...)
}

func (l *loader) add(k *kind, resource, name string, info fs.FileInfo) error {
	id := k.id + " " + resource
	if first, twice := l.places[id]; twice {
		l.fault(name, schema.DuplicatePath, "delete one of them", fmt.Sprintf("%s %q is defined by %s already", k.id, resource, first))
		return nil
	}
	l.places[id] = name
	c := l.collector(name)
	stray := k.folder == environments && !l.wanted(resource)
	if stray {
		c.Budget = schema.NewBudget(1) // only the first problem is of interest
	}
	c.Lenient = k.id == "filter test" // a broken test refuses no definitions; `triphammer test` fails on it
	data, err := l.read(c, name, info)
	if err != nil {
		return err
	}
	if d := l.document(c, k, resource, data); d == nil {
		if k.id == "filter test" {
			l.factory.Tests = append(l.factory.Tests, brokenTest(c, resource))
		}
		if stray {
			l.ignored(c)
			return l.enough()
		}
		l.unread[id] = true
		l.report.Diagnostics = append(l.report.Diagnostics, c.Found...)
	}
	return l.enough()
}

// read returns a file's bytes, nil with a finding if it is too large.
func (l *loader) read(c *schema.Collector, name string, info fs.FileInfo) ([]byte, error) {
	if !info.Mode().IsRegular() {
		c.Error(schema.At{}, schema.NotRegular, "put the file itself there", "a symbolic link, submodule or special file in a definition's place")
		return nil, nil
	}
	if info.Size() > schema.MaxFile {
		c.Error(schema.At{}, schema.TooLarge, "make it smaller", fmt.Sprintf("%d bytes; a definition file has at most %d", info.Size(), schema.MaxFile))
		return nil, nil
	}
	l.bytes += info.Size()
	if l.bytes > l.opt.MaxBytes {
		l.fault("factory.yaml", schema.TooMany, splitHint, fmt.Sprintf("the tree has more than %d bytes of definition files", l.opt.MaxBytes))
		return nil, errStop
	}
	data, err := fs.ReadFile(l.tree, name)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(data) > schema.MaxFile { // it grew meanwhile
		c.Error(schema.At{}, schema.TooLarge, "make it smaller", fmt.Sprintf("%d bytes; a definition file has at most %d", len(data), schema.MaxFile))
		return nil, nil
	}
	l.factory.Files = append(l.factory.Files, name)
	l.factory.blobs[name] = blobName(data)
	return data, nil
}

// lstat finds a file in the listing of its folder, and so follows no link. lstat must have
// found the folder, too.
func (l *loader) lstat(name string) (fs.FileInfo, error) {
	dir := path.Dir(name)
	listing := l.listings[dir]
	if listing == nil {
		entries, err := fs.ReadDir(l.tree, dir)
		if err != nil {
			return nil, err
		}
		listing = make(map[string]fs.DirEntry, len(entries))
		for _, e := range entries {
			listing[e.Name()] = e
		}
		l.listings[dir] = listing
	}
	entry := listing[path.Base(name)]
	if entry == nil {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return entry.Info()
}

// document parses a file and checks its shape; nil if it has no tree.
func (l *loader) document(c *schema.Collector, k *kind, name string, data []byte) *document {
	if data == nil {
		return nil
	}
	var doc *schema.Document
	switch {
	case k.text != "":
		doc = schema.ParseMarkdown(c, data)
	case k.shape.Type == schema.TypeList:
		doc = schema.Parse(c, data, schema.List)
	default:
		doc = schema.Parse(c, data, schema.Mapping)
	}
	if doc == nil {
		return nil
	}
	schema.Check(c, doc.Root, k.shape, "")
	d := &document{kind: k, name: name, Document: doc, Collector: c}
	l.docs = append(l.docs, d)
	l.nodes += doc.Nodes
	return d
}

// Further limits of a tree. The limit of bytes (SPEC 2.5) does not suffice: a few
// bytes can make one key or one finding, so that a small tree would cost gigabytes.
const (
	maxNodes   = 500_000
	maxEntries = 100_000 // files and folders, of definitions or not
	maxFolders = 32      // in each other
	maxVersion = 100     // bytes of a schemaVersion that a message quotes
)

const splitHint = "split the factory, or take out what is not needed"

// enough reports a tree that is over its limits.
func (l *loader) enough() error {
	if l.nodes <= maxNodes {
		return nil
	}
	l.fault("factory.yaml", schema.TooMany, splitHint, fmt.Sprintf("the tree has more than %d keys and values", maxNodes))
	return errStop
}

func (l *loader) collector(name string) *schema.Collector {
	return &schema.Collector{Path: name, Budget: l.budget, Strict: l.opt.Strict}
}

// of returns the parsed documents of a kind, by name.
func (l *loader) of(id string) []*document {
	byName := make(map[string]*document)
	for _, d := range l.docs {
		if d.kind.id == id {
			byName[d.name] = d
		}
	}
	return slices.Collect(func(yield func(*document) bool) {
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			if !yield(byName[name]) {
				return
			}
		}
	})
}

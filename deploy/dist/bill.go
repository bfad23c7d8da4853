package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// component is something of others that the program contains.
type component struct {
	name, version string
	kind          string // of the package URL; empty: it has none
	sum           string // of the module's files
	licences      []string
	texts         []licenceText
}

type licenceText struct{ name, text string }

// modulesOf are what the program contains: the modules that the linker noted in it, the Go
// library, what the pages have of others, SQLite and the C library.
func modulesOf(ctx context.Context, root string, p program) ([]component, error) {
	info, err := buildinfo.ReadFile(p.path)
	if err != nil {
		return nil, err
	}
	listed, err := output(ctx, root, []string{"GOFLAGS="}, "go", "list", "-m", "-f", "{{.Path}}\t{{.Dir}}", "all")
	if err != nil {
		return nil, err
	}
	folders := make(map[string]string)
	for line := range strings.Lines(listed) {
		name, folder, _ := strings.Cut(strings.TrimSpace(line), "\t")
		folders[name] = folder
	}
	var all []component
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := component{name: m.Path, version: m.Version, kind: "golang", sum: m.Sum}
		if c.texts, err = licencesIn(folders[m.Path]); err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
		all = append(all, c)
	}
	goroot, err := output(ctx, root, nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	library := component{name: "stdlib", version: strings.TrimPrefix(info.GoVersion, "go"), kind: "golang"}
	if library.texts, err = licencesIn(goroot); err != nil {
		return nil, err
	}
	sqlite, err := sqliteOf(folders["github.com/mattn/go-sqlite3"])
	if err != nil {
		return nil, err
	}
	glibc, err := glibcOf(ctx, root)
	if err != nil {
		return nil, err
	}
	all = append(all, library, sqlite, glibc)
	for _, folder := range []string{"htmx", "fonts"} {
		c := component{name: "third_party/" + folder, version: "as in third_party/README.md"}
		if c.texts, err = licencesIn(filepath.Join(root, "third_party", folder)); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	for i := range all {
		all[i].classify()
	}
	slices.SortFunc(all, func(a, b component) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]es?|copying|notice|patents|ofl-.*|unlicense)([-.].*)?$`)

// licencesIn are the texts at the top of a folder that say under which terms its files are.
func licencesIn(folder string) ([]licenceText, error) {
	if folder == "" {
		return nil, errors.New("its files are not here; go mod download brings them")
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var all []licenceText
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, licenceText{e.Name(), string(text)})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there is no licence in %s", filepath.Base(folder))
	}
	return all, nil
}

var sqliteVersion = regexp.MustCompile(`#define SQLITE_VERSION\s+"([0-9.]+)"`)

// sqliteOf is the SQLite in the module of its driver.
func sqliteOf(folder string) (component, error) {
	header, err := os.ReadFile(filepath.Join(folder, "sqlite3-binding.h"))
	if err != nil {
		return component{}, err
	}
	found := sqliteVersion.FindSubmatch(header)
	if found == nil {
		return component{}, errors.New("the version of SQLite is not where it is expected")
	}
	return component{
		name: "sqlite", version: string(found[1]), licences: []string{"blessing"},
		texts: []licenceText{{"sqlite3.h", "The author disclaims copyright to this source code. In place of a legal notice, here is a blessing:\n\n" +
			"May you do good and not evil.\nMay you find forgiveness for yourself and forgive others.\nMay you share freely, never taking more than you give.\n"}},
	}, nil
}

// glibcOf is the C library of the building machine, which is linked into the program.
func glibcOf(ctx context.Context, root string) (component, error) {
	version, err := output(ctx, root, nil, "getconf", "GNU_LIBC_VERSION")
	if err != nil {
		return component{}, err
	}
	const terms = "/usr/share/common-licenses/LGPL-2.1"
	text, err := os.ReadFile(terms)
	if err != nil {
		return component{}, fmt.Errorf("the terms of the C library: %w", err)
	}
	const how = "The GNU C Library is linked into the program. Who wants another version of it in the program builds it again from its\nsource, with make build or make dist.\n\n"
	return component{
		name: "glibc", version: strings.TrimPrefix(version, "glibc "), licences: []string{"LGPL-2.1-or-later"},
		texts: []licenceText{{filepath.Base(terms), how + string(text)}},
	}, nil
}

// phrases tell the licences apart, by words that each has and no other.
var phrases = []struct {
	licence string
	all     []string
}{
	{"Apache-2.0", []string{"apache license", "version 2.0"}},
	{"MIT", []string{"permission is hereby granted, free of charge, to any person obtaining a copy"}},
	{"BSD-3-Clause", []string{"redistribution and use in source and binary forms", "be used to endorse or promote products"}},
	{"BSD-2-Clause", []string{"redistribution and use in source and binary forms"}},
	{"ISC", []string{"distribute this software for any purpose with or without fee is hereby granted, provided that"}},
	{"0BSD", []string{"permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted."}},
	{"MPL-2.0", []string{"mozilla public license", "version 2.0"}},
	{"OFL-1.1", []string{"sil open font license", "version 1.1"}},
}

// classify finds the names of the licences in their texts. A text that names none, such as a
// notice or a grant of patents, belongs to the licence beside it.
func (c *component) classify() {
	if len(c.licences) > 0 {
		return
	}
	for _, t := range c.texts {
		text := strings.ToLower(strings.Join(strings.Fields(t.text), " "))
		for _, p := range phrases {
			has := !slices.ContainsFunc(p.all, func(phrase string) bool { return !strings.Contains(text, phrase) })
			if p.licence == "BSD-2-Clause" && slices.Contains(c.licences, "BSD-3-Clause") {
				continue // whose text begins alike
			}
			if has && !slices.Contains(c.licences, p.licence) {
				c.licences = append(c.licences, p.licence)
			}
		}
	}
	slices.Sort(c.licences)
}

// collectLicences joins the terms of everything that the program contains.
func collectLicences(all []component) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("The program contains works of others. Each stands here with its terms.\n\n")
	for _, c := range all {
		if len(c.licences) == 0 {
			return nil, fmt.Errorf("%s %s: its licence is not known; look at it, and say it in deploy/dist/bill.go", c.name, c.version)
		}
		fmt.Fprintf(&b, "  %s %s: %s\n", c.name, c.version, strings.Join(c.licences, ", "))
	}
	for _, c := range all {
		fmt.Fprintf(&b, "\n%s\n%s %s\n", strings.Repeat("=", 100), c.name, c.version)
		for _, t := range c.texts {
			fmt.Fprintf(&b, "%s\n%s\n\n%s\n", strings.Repeat("-", 100), t.name, strings.TrimSpace(t.text))
		}
	}
	return b.Bytes(), nil
}

// bill is the bill of materials, as SPDX 2.3.
func (d *dist) bill(all []component) ([]byte, error) {
	type reference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	type pkg struct {
		Name      string      `json:"name"`
		ID        string      `json:"SPDXID"`
		Version   string      `json:"versionInfo"`
		Location  string      `json:"downloadLocation"`
		Analyzed  bool        `json:"filesAnalyzed"`
		Concluded string      `json:"licenseConcluded"`
		Declared  string      `json:"licenseDeclared"`
		Copyright string      `json:"copyrightText"`
		Comment   string      `json:"comment,omitempty"`
		Purpose   string      `json:"primaryPackagePurpose,omitempty"`
		Refs      []reference `json:"externalRefs,omitempty"`
	}
	type relation struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
	const none, self = "NOASSERTION", "SPDXRef-triphammer"
	packages := []pkg{{
		Name: "triphammer", ID: self, Version: d.version, Location: none, Concluded: none, Declared: none, Copyright: none, Purpose: "APPLICATION",
	}}
	relations := []relation{{"SPDXRef-DOCUMENT", "DESCRIBES", self}}
	notID := regexp.MustCompile(`[^A-Za-z0-9.-]+`)
	for _, c := range all {
		p := pkg{
			Name: c.name, ID: "SPDXRef-" + notID.ReplaceAllString(c.name, "-"), Version: c.version, Location: none,
			Concluded: none, Declared: strings.Join(c.licences, " AND "), Copyright: none, Purpose: "LIBRARY",
		}
		if c.kind != "" {
			p.Refs = []reference{{"PACKAGE-MANAGER", "purl", "pkg:" + c.kind + "/" + c.name + "@" + c.version}}
		}
		if c.sum != "" {
			p.Comment = "the sum of the module in go.sum: " + c.sum
		}
		packages = append(packages, p)
		relations = append(relations, relation{self, "STATIC_LINK", p.ID})
	}
	text, err := json.MarshalIndent(map[string]any{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": "triphammer-" + d.version,
		"documentNamespace": "https://spdx.org/spdxdocs/triphammer-" + d.version,
		"creationInfo":      map[string]any{"created": d.time.Format("2006-01-02T15:04:05Z"), "creators": []string{"Tool: triphammer-deploy-dist"}},
		"packages":          packages, "relationships": relations,
	}, "", "  ")
	return append(text, '\n'), err
}

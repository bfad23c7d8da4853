package schema

import (
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Case is one test of a JUnit report. Failure is empty if the test passed; its first line is
// the message.
type Case struct{ Class, Name, Failure, Output string }

// WriteJUnit writes a JUnit report with one suite, in the form that CI servers
// read (the schema of Jenkins' xUnit plugin, which is in third_party/junit).
func WriteJUnit(w io.Writer, suite string, cases []Case) error {
	type (
		failure struct {
			Message string `xml:"message,attr"`
			Text    string `xml:",chardata"`
		}
		testcase struct {
			Name    string   `xml:"name,attr"`
			Class   string   `xml:"classname,attr"`
			Failure *failure `xml:"failure"`
			Output  string   `xml:"system-out,omitempty"`
		}
		testsuite struct {
			XMLName  xml.Name   `xml:"testsuite"`
			Name     string     `xml:"name,attr"`
			Tests    int        `xml:"tests,attr"`
			Failures int        `xml:"failures,attr"`
			Errors   int        `xml:"errors,attr"`
			Cases    []testcase `xml:"testcase"`
		}
	)
	s := testsuite{Name: suite, Tests: len(cases)}
	for _, c := range cases {
		t := testcase{Name: plain(c.Name), Class: plain(c.Class), Output: c.Output}
		if c.Failure != "" {
			message, _, _ := strings.Cut(c.Failure, "\n")
			t.Failure = &failure{message, c.Failure}
			s.Failures++
		}
		s.Cases = append(s.Cases, t)
	}
	text, err := xml.MarshalIndent(struct {
		XMLName xml.Name  `xml:"testsuites"`
		Suite   testsuite `xml:"testsuite"`
	}{Suite: s}, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, text)
	return err
}

// printJUnit writes a test per definition file: it fails with the file's errors,
// and has its warnings as output.
func printJUnit(w io.Writer, r *Report, opt PrintOptions) error {
	errors, warnings := make(map[string][]string), make(map[string][]string)
	paths := make(map[string]bool)
	for _, path := range r.Files {
		paths[path] = true
	}
	for _, d := range r.Diagnostics {
		paths[d.Path] = true
		line := fmt.Sprintf("%s%s: %s [%s]", plain(opt.Prefix+d.Path), position(d), plain(strings.ReplaceAll(d.full(), "\n", " ")), d.Code)
		if d.Severity == Error {
			errors[d.Path] = append(errors[d.Path], line)
		} else {
			warnings[d.Path] = append(warnings[d.Path], line)
		}
	}
	var cases []Case
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		cases = append(cases, Case{
			Class: "definitions", Name: opt.Prefix + path,
			Failure: strings.Join(errors[path], "\n"), Output: strings.Join(warnings[path], "\n"),
		})
	}
	return WriteJUnit(w, "triphammer validate", cases)
}

package event

import (
	"reflect"
	"slices"
)

// Redact returns the event with hide applied to each of its texts, and with long texts
// clipped (SPEC 14.7). It changes every field, even a field that is added later, unless the
// field has a tag:
//
//   - redact:"never" is for a field that only the server writes, and never an agent.
//   - redact:"words" is for a field that holds one of a few words, such as "agent". Such a
//     word stays, because a secret of the same value would make the event useless. Any other
//     text in the field is hidden.
func Redact(e Event, hide func(string) string) Event {
	v := reflect.New(reflect.TypeOf(e)).Elem()
	v.Set(reflect.ValueOf(e))
	for i := range v.NumField() {
		field := v.Field(i)
		if field.Kind() != reflect.String || field.Len() == 0 {
			continue
		}
		switch v.Type().Field(i).Tag.Get("redact") {
		case "never":
			continue
		case "words":
			if slices.Contains(words, field.String()) {
				continue
			}
		}
		field.SetString(Clip(hide(field.String())))
	}
	return v.Interface().(Event)
}

// words are the words of Triphammer in the fields with the tag redact:"words".
var words = slices.Concat(roles, []string{
	PhasePull, PhaseClone, PhaseSetup, PhaseAgent, PhaseCollect,
	Stdout, Stderr,
	FileCreated, FileModified, FileDeleted, FileIgnored,
	ArtifactFile, ArtifactScreenshot, ArtifactPullRequest, ArtifactReference,
})

package signature

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"time"
)

//go:embed senders.json
var senderRows []byte

// rowsOfSenders are the rows of senders.json. The keys of a row are the fields of Scheme and of its parts,
// and instead of Tolerance toleranceSeconds. guide has the names of the menus and fields as the sender
// has them, from the page in its source, or else in the row's source.
func rowsOfSenders() (all []*Scheme) {
	var rows []struct {
		Scheme
		ToleranceSeconds int
		Guide            *Guide
	}
	d := json.NewDecoder(bytes.NewReader(senderRows))
	d.DisallowUnknownFields()
	if err := d.Decode(&rows); err != nil {
		panic("senders.json: " + err.Error()) // a test reads it
	}
	for i := range rows {
		s := &rows[i].Scheme
		s.Tolerance, s.written = time.Duration(rows[i].ToleranceSeconds)*time.Second, rows[i].Guide
		all = append(all, s)
	}
	return all
}

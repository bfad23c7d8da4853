package signature

import (
	"net/http"
	"strings"
	"testing"
)

func BenchmarkVerify(b *testing.B) {
	body := `{"a":"` + strings.Repeat("x", 1000) + `"}`
	for _, s := range All() {
		text := body
		if !s.BindsBody() {
			text = bodyFor(s)
		}
		v, r := signed(b, s, text)
		b.Run(s.Name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := v.Verify(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkBearer(b *testing.B) {
	v, err := Bearer("s3cret")
	if err != nil {
		b.Fatal(err)
	}
	r := &Request{Header: http.Header{"Authorization": {"Bearer s3cret"}}}
	b.ReportAllocs()
	for b.Loop() {
		if err := v.Verify(r); err != nil {
			b.Fatal(err)
		}
	}
}

package delivery

import (
	"bytes"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// notJSON lists the kinds of body that senders send instead of JSON, each with what to
// change at the sender. The first kind that fits counts.
var notJSON = []struct {
	is   func(header http.Header, body []byte) bool
	cure string
}{
	{func(_ http.Header, body []byte) bool { return len(body) == 0 }, "the body is empty: make the sender send JSON"},
	{isCompressed, "the body is compressed: switch that off at the sender, as no Content-Encoding is decoded"},
	{begins("\xff\xfe\x00\x00", "\x00\x00\xfe\xff", "{\x00\x00\x00", "[\x00\x00\x00", "\x00\x00\x00{", "\x00\x00\x00["), "the body is UTF-32: make the sender write UTF-8"},
	{begins("\xff\xfe", "\xfe\xff", "{\x00", "[\x00", "\"\x00", "\x00{", "\x00[", "\x00\""), "the body is UTF-16: make the sender write UTF-8"},
	{begins("\xef\xbb\xbf"), "the body begins with a byte order mark: make the sender write UTF-8 without it"},
	{begins("<"), "the body is XML or HTML: set the sender's format to JSON"},
	{isMultipart, "the body is a form in parts: set the sender's content type to application/json"},
	{func(header http.Header, body []byte) bool {
		return header.Get("X-Slack-Signature") != "" && isForm(header, body)
	}, "Slack's buttons, shortcuts and commands come as forms, which start nothing; buttons decide with connect: socket alone"},
	{isForm, "the body is a form: set the sender's content type to application/json"},
}

// cureOf says what to change at the sender of a body that is not JSON. It is empty if the
// kind of the body is not known.
func cureOf(header http.Header, body []byte) string {
	for _, kind := range notJSON {
		if kind.is(header, body) {
			return kind.cure
		}
	}
	return ""
}

func begins(prefixes ...string) func(http.Header, []byte) bool {
	return func(_ http.Header, body []byte) bool {
		body = bytes.TrimLeft(body, " \t\r\n")
		return slices.ContainsFunc(prefixes, func(p string) bool { return bytes.HasPrefix(body, []byte(p)) })
	}
}

// isCompressed recognizes gzip, zlib and Zstandard by their first bytes. It recognizes
// Brotli, which has no such bytes, by the Content-Encoding.
func isCompressed(header http.Header, body []byte) bool {
	if begins("\x1f\x8b", "\x78\x01", "\x78\x5e", "\x78\x9c", "\x78\xda", "\x28\xb5\x2f\xfd")(header, body) {
		return true
	}
	encoding := strings.ToLower(strings.TrimSpace(header.Get("Content-Encoding")))
	return encoding != "" && encoding != "identity" && !begins("{", "[", `"`)(header, body)
}

func isMultipart(_ http.Header, body []byte) bool {
	return bytes.HasPrefix(body, []byte("--")) && bytes.Contains(bytes.ToLower(body[:min(len(body), 1024)]), []byte("content-disposition:"))
}

// formStart is the first field of a URL-encoded form.
var formStart = regexp.MustCompile(`^[A-Za-z0-9_.~*%+\[\]-]+=[^\s{"<]`)

func isForm(_ http.Header, body []byte) bool {
	return formStart.Match(body[:min(len(body), 1024)])
}

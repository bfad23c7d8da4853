package mcp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"triphammer/server/inert"
)

// maxAnswer limits the JSON of an answer, in bytes. A client gets the JSON twice, as text and as
// structured content, and programs that use models take little more at once.
const maxAnswer = 64 << 10

// answer is the answer of a tool. Everything that strangers wrote is in JSON strings below
// result, so that no text can end its string.
type answer struct {
	Notice string          `json:"notice,omitempty"` // comes first, because the result may contradict it
	Cut    string          `json:"cut,omitempty"`
	Result json.RawMessage `json:"result"`
}

// show makes the JSON of an answer. Characters that cannot be seen become visible escapes. If
// the answer is too long, the longest texts lose their ends.
func show(result json.RawMessage, notice string) (json.RawMessage, error) {
	if !json.Valid(result) { // also limits the depth
		return nil, errors.New("the server answered something that is not JSON")
	}
	shown := answer{Notice: notice}
	for most := maxAnswer; most >= 64; most /= 2 {
		w := writer{in: json.NewDecoder(bytes.NewReader(result)), most: most}
		w.in.UseNumber()
		if err := w.value(); err != nil {
			return nil, err
		}
		shown.Result = w.out.Bytes()
		if w.cut {
			shown.Cut = fmt.Sprintf("The answer was too long: texts of more than %d bytes are cut, and say so at their end. Ask for fewer things at once, or for one of them.", most)
		}
		if text, err := encode(shown); err != nil || len(text) <= maxAnswer {
			return text, err
		}
	}
	return nil, errors.New("the answer is too long: ask for fewer entries with limit, or for one thing")
}

// writer writes JSON again, in its order, with other texts.
type writer struct {
	in   *json.Decoder
	out  bytes.Buffer
	most int // bytes of a text
	cut  bool
}

func (w *writer) value() error {
	token, err := w.in.Token()
	if err != nil {
		return err
	}
	switch token := token.(type) {
	case json.Delim:
		return w.members(token == '{')
	case string:
		return w.text(token, w.most)
	}
	return w.put(token)
}

// members writes the members of an object or an array. The caller has read its beginning.
func (w *writer) members(object bool) error {
	begin, end := byte('['), byte(']')
	if object {
		begin, end = '{', '}'
	}
	w.out.WriteByte(begin)
	for first := true; w.in.More(); first = false {
		if !first {
			w.out.WriteByte(',')
		}
		if object {
			key, err := w.in.Token()
			if err == nil {
				err = w.text(key.(string), max(w.most, 256))
			}
			if err != nil {
				return err
			}
			w.out.WriteByte(':')
		}
		if err := w.value(); err != nil {
			return err
		}
	}
	w.out.WriteByte(end)
	_, err := w.in.Token()
	return err
}

func (w *writer) text(text string, most int) error {
	text = inert.Text(text)
	if len(text) > most {
		w.cut = true
		text = fmt.Sprintf("%s… [cut here: %d bytes in all]", beginning(text, most), len(text))
	}
	return w.put(text)
}

func (w *writer) put(value any) error {
	text, err := encode(value)
	w.out.Write(text)
	return err
}

// encode makes JSON without escapes that only HTML needs.
func encode(value any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// beginning is the beginning of a text, of at most most bytes, that ends with a whole character.
func beginning(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// piece is a part of a long text, with the beginning of the next piece.
type piece struct {
	Text       string `json:"text"`
	Offset     int    `json:"offset"`
	NextOffset int    `json:"next_offset,omitempty"` // 0: the text ends with this piece
	TotalBytes int    `json:"total_bytes"`
	// Escaped tells that the text has invisible characters, which are shown as \uXXXX.
	Escaped bool `json:"has_escaped_characters,omitempty"`
}

const (
	defaultPiece = 16 << 10
	maxPiece     = 32 << 10
)

// pieceOf takes a piece out of a text that strangers wrote.
func pieceOf(text string, offset, length int) (piece, error) {
	if offset < 0 || offset > len(text) {
		return piece{}, fmt.Errorf("offset: the text has %d bytes", len(text))
	}
	length = cmp.Or(length, defaultPiece)
	if length < utf8.UTFMax || length > maxPiece {
		return piece{}, fmt.Errorf("max_bytes is a number from %d to %d", utf8.UTFMax, maxPiece)
	}
	part := beginning(text[offset:], length)
	if part == "" && offset < len(text) { // the text is not UTF-8 here
		part = text[offset : offset+1]
	}
	p := piece{Text: inert.Text(part), Offset: offset, TotalBytes: len(text)}
	p.Escaped = p.Text != strings.ReplaceAll(part, "\r\n", "\n")
	if end := offset + len(part); end < len(text) {
		p.NextOffset = end
	}
	return p, nil
}

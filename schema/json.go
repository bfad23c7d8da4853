package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"unicode/utf8"
)

// AppendJSON appends the value as JSON, keys in file order; a date is a string.
func (n *Node) AppendJSON(dst []byte) []byte {
	switch n.Kind {
	case Null:
		return append(dst, "null"...)
	case Bool, Int, Float:
		return append(dst, n.Text...)
	case List:
		dst = append(dst, '[')
		for i, item := range n.Items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = item.AppendJSON(dst)
		}
		return append(dst, ']')
	case Mapping:
		dst = append(dst, '{')
		for i, f := range n.Fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendString(dst, f.Key), ':')
			dst = f.Value.AppendJSON(dst)
		}
		return append(dst, '}')
	}
	return appendString(dst, n.Text)
}

func appendString(dst []byte, s string) []byte {
	quoted, _ := json.Marshal(s) // a string always encodes
	return append(dst, quoted...)
}

// NodeOf reads JSON as a node without positions, keys in their order. The error is for
// people.
func NodeOf(text []byte) (*Node, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("it is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	n, err := nodeFrom(d, 1)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON value")
	}
	return n, nil
}

func nodeFrom(d *json.Decoder, depth int) (*Node, error) {
	token, err := d.Token()
	switch {
	case err != nil:
		return nil, fmt.Errorf("it is not JSON: %w", err)
	case depth > maxDepth:
		return nil, errors.New(tooDeep)
	}
	switch v := token.(type) {
	case nil:
		return &Node{Kind: Null}, nil
	case bool:
		return &Node{Kind: Bool, Text: strconv.FormatBool(v)}, nil
	case json.Number:
		if i, ok := new(big.Int).SetString(v.String(), 10); ok {
			return &Node{Kind: Int, Text: i.String()}, nil
		}
		text, _ := jsonNumber(v.String())
		return &Node{Kind: Float, Text: text}, nil
	case string:
		return &Node{Kind: String, Text: v}, nil
	}
	n := &Node{Kind: List}
	if token == json.Delim('{') {
		n.Kind = Mapping
	}
	seen := make(map[string]bool)
	for d.More() {
		key := ""
		if n.Kind == Mapping {
			token, err := d.Token()
			if err != nil {
				return nil, fmt.Errorf("it is not JSON: %w", err)
			}
			if key, _ = token.(string); seen[key] {
				return nil, fmt.Errorf("the key %q is there twice", key)
			}
			seen[key] = true
		}
		v, err := nodeFrom(d, depth+1)
		if err != nil {
			return nil, err
		}
		if n.Kind == Mapping {
			n.Fields = append(n.Fields, Field{Key: key, Value: v})
		} else {
			n.Items = append(n.Items, v)
		}
	}
	_, err = d.Token() // the end
	return n, err
}

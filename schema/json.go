package schema

import "encoding/json"

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

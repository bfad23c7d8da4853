package schema

// Tests is the shape of tests/<name>.yaml, whose root is a list (SPEC 2.2b).
var Tests = Shape{Type: TypeList, NonEmpty: true, Elem: &Shape{Type: TypeMap, Keys: []Key{
	{Name: "name", Required: true, Shape: nonBlank},
	{Name: "webhook", Required: true, Shape: nonBlank},
	{Name: "headers", Shape: Shape{Type: TypeMapOf, Elem: &text}},
	{Name: "payload", Shape: Shape{Type: Any, Nullable: true}},
	{Name: "payloadFile", Shape: nonBlank},
	{Name: "answers", Shape: Shape{Type: TypeMapOf, Elem: &Shape{Type: TypeList, Elem: &text}}},
	{Name: "expect", Required: true, Shape: Shape{Type: TypeList, Elem: &nonBlank, Unique: true}},
}}}

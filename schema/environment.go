package schema

import (
	"maps"
	"slices"
)

// Environment is the shape of environments/<name>.yaml (SPEC 2.2a).
var Environment = Shape{Type: TypeMap, Keys: []Key{
	{Name: "description", Shape: optionalText},
	{Name: "dockerImage", Shape: nonBlank},
	{Name: "repositories", Shape: Shape{Type: TypeList, Elem: &Shape{Type: TypeMap, Keys: []Key{
		{Name: "url", Shape: nonBlank},
		{Name: "ref", Shape: nonBlank},
		{Name: "path", Shape: nonBlank},
		{Name: "owner", Shape: nonBlank},
		{Name: "name", Shape: nonBlank},
		{Name: "secret", Shape: nonBlank},
		{Name: "access", Default: `"write"`, Shape: Shape{Type: TypeString, Enum: Accesses}},
	}}}},
	{Name: "setupCommands", Shape: Shape{Type: TypeList, Elem: &nonBlank}},
	{Name: "cache", Shape: Shape{Type: TypeMap, Keys: []Key{
		{Name: "paths", Required: true, Shape: Shape{Type: TypeList, NonEmpty: true, Unique: true, Elem: &nonBlank}},
		{Name: "files", Required: true, Shape: Shape{Type: TypeList, NonEmpty: true, Unique: true, Elem: &nonBlank}},
	}}},
	{Name: "env", Shape: Shape{Type: TypeMapOf, Elem: &text}},
	{Name: "secrets", Shape: names},
	{Name: "command", Shape: command},
	{Name: "timeoutMinutes", Default: "60", Shape: number},
	{Name: "idleMinutes", Default: "15", Shape: number},
	{Name: "network", Shape: anything},
	{Name: "services", Shape: Shape{Type: TypeList, Elem: &Shape{Type: TypeMap, Keys: []Key{
		{Name: "name", Required: true, Shape: nonBlank},
		{Name: "url", Required: true, Shape: nonBlank},
		{Name: "secretName", Required: true, Shape: nonBlank},
		{Name: "header", Default: `"Authorization: Bearer"`, Shape: nonBlank},
		{Name: "methods", Default: `["GET"]`, Shape: Shape{Type: TypeList, NonEmpty: true, Unique: true, Elem: &Shape{Type: TypeString, Enum: ServiceMethods}}},
		{Name: "paths", Required: true, Shape: Shape{Type: TypeList, NonEmpty: true, Unique: true, Elem: &nonBlank}},
	}}}},
	{Name: "models", Shape: Shape{Type: TypeList, NonEmpty: true, Unique: true, Elem: &nonBlank}},
	{Name: "hostedTools", Default: "false", Shape: boolean},
	{Name: "budget", Shape: Shape{Type: TypeMap, Keys: budget}},
	{Name: "resources", Shape: Shape{Type: TypeMap, Keys: []Key{
		{Name: "memoryMb", Shape: integer},
		{Name: "cpus", Shape: number},
		{Name: "processes", Shape: integer},
		{Name: "diskMb", Shape: integer},
	}}},
	{Name: "isolation", Shape: Shape{Type: TypeString, Enum: append(slices.Clone(Isolations), slices.Sorted(maps.Keys(OldIsolations))...)}},
	{Name: "trustRepositorySettings", Default: "false", Shape: boolean},
}}

// Accesses are the values of access of an environment's repository. They say what a run may do.
var Accesses = []string{"read", "write"}

// ServiceMethods are the methods that a run may use of an environment's service.
var ServiceMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// Isolations are the values of an environment's isolation, weakest first (SPEC 14.2).
var Isolations = []string{"none", "kernel", "sandbox", "container", "kubernetes", "command"}

// OldIsolations maps old names of isolations, which are still read, to the present names.
var OldIsolations = map[string]string{"process": "none", "bubblewrap": "sandbox"}

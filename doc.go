// Package triphammer is the root of the module. It holds no code of the
// product: ARCHITECTURE.md is the map, and the test beside this file keeps
// the import graph that the map draws.
package triphammer

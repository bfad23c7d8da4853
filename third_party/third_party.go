// Package thirdparty has the files of others that the pages use. The other files of this
// folder are for tests.
package thirdparty

import "embed"

// Web has htmx and the fonts.
//
//go:embed htmx/*.js fonts/*.woff2
var Web embed.FS

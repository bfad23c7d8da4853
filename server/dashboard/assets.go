package dashboard

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"path"
	"sync"

	"triphammer/docs"
	thirdparty "triphammer/third_party"
)

//go:embed static
var static embed.FS

// asset is a file that pages load.
type asset struct {
	data []byte
	hash string
}

// assets are the files by name.
var assets = sync.OnceValue(func() map[string]asset {
	found := make(map[string]asset)
	keep := func(name string, data []byte) {
		sum := sha256.Sum256(data)
		found[name] = asset{data, hex.EncodeToString(sum[:6])}
	}
	add := func(files fs.FS, dir string) {
		entries, err := fs.ReadDir(files, dir)
		if err != nil {
			panic(err) // the program was built without the files
		}
		for _, e := range entries {
			data, err := fs.ReadFile(files, path.Join(dir, e.Name()))
			if err != nil {
				panic(err)
			}
			keep(e.Name(), data)
		}
	}
	add(static, "static")
	add(thirdparty.Web, "htmx")
	add(thirdparty.Web, "fonts")
	add(docs.Pictures, "screenshots")
	// All scripts are in one file, because htmx ignores an extension that loads after it starts.
	var script []byte
	for _, part := range []string{"htmx.min.js", "hx-sse.min.js", "triphammer.js"} {
		script = append(append(script, found[part].data...), "\n;\n"...)
		delete(found, part)
	}
	keep("triphammer.js", script)
	return found
})

// AssetPath is the path below which the server has the files that pages load.
const AssetPath = "/static/"

// Asset finds a file that pages load, by its name.
func Asset(name string) (data []byte, contentType, hash string, ok bool) {
	a, ok := assets()[name]
	return a.data, mime.TypeByExtension(path.Ext(name)), a.hash, ok
}

// assetURL is the address of a file. It has the hash of the file, so that browsers can keep it.
func assetURL(base, name string) (string, error) {
	a, ok := assets()[name]
	if !ok {
		return "", fmt.Errorf("there is no file %s", name)
	}
	return base + AssetPath + name + "?v=" + a.hash, nil
}

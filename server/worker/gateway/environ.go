package gateway

import "strings"

// Environ returns the variables by which programs find the proxy at address, a HOST:PORT
// inside the walls. Programs differ in the case of the names that they read; curl, and so
// git, reads http_proxy in lower case alone.
func Environ(address string) map[string]string {
	url := "http://" + address
	vars := map[string]string{
		// Node.js (from 22.21 and 24 on) uses a proxy only if it is told to.
		"NODE_USE_ENV_PROXY": "1",
		// Yarn (from 2 on) reads variables of its own.
		"YARN_HTTP_PROXY": url, "YARN_HTTPS_PROXY": url,
	}
	for name, value := range map[string]string{
		"HTTP_PROXY": url, "HTTPS_PROXY": url, "ALL_PROXY": url,
		// Servers that the agent starts are inside the walls.
		"NO_PROXY": "localhost,127.0.0.1,::1",
	} {
		vars[name], vars[strings.ToLower(name)] = value, value
	}
	return vars
}

package gateway

import "strings"

// Environ returns the variables with which programs find the proxy at address, a HOST:PORT
// inside the walls. It has each name in both cases, because programs differ: curl, and so
// git, reads http_proxy only in lower case. direct are hosts that are reached without the proxy.
func Environ(address string, direct ...string) map[string]string {
	url := "http://" + address
	vars := map[string]string{
		// Node.js (from 22.21 and 24 on) uses a proxy only if it is told to.
		"NODE_USE_ENV_PROXY": "1",
		// Yarn (from 2 on) reads its own variables.
		"YARN_HTTP_PROXY": url, "YARN_HTTPS_PROXY": url,
	}
	for name, value := range map[string]string{
		"HTTP_PROXY": url, "HTTPS_PROXY": url, "ALL_PROXY": url,
		// Servers that the agent starts are inside the walls.
		"NO_PROXY": strings.Join(append([]string{"localhost", "127.0.0.1", "::1"}, direct...), ","),
	} {
		vars[name], vars[strings.ToLower(name)] = value, value
	}
	return vars
}

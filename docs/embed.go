// Package docs holds the pages for operators, so that the binary has them where
// there is no network: exocomp docs shows them.
package docs

import "embed"

// Operations are the pages, as operations/NAME.md. Each begins with "# Title".
//
//go:embed operations/*.md
var Operations embed.FS

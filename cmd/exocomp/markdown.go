package main

import (
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// What our own pages use of Markdown, shown on a terminal: headings, paragraphs,
// lists, tables, fenced code; in a line code, bold and links. What is neither is
// shown as it stands. Lines of code are never broken: somebody copies them.

// markdown renders one text.
type markdown struct {
	b     strings.Builder
	width int
	style bool
}

// renderMarkdown writes text in lines of at most width, where it can be broken.
func renderMarkdown(w io.Writer, text string, width int, style bool) error {
	m := &markdown{width: width, style: style}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for len(lines) > 0 {
		lines = m.block(lines)
	}
	_, err := io.WriteString(w, m.b.String())
	return err
}

var (
	listItem = regexp.MustCompile(`^( *)([-*]|\d+\.) +`)
	link     = regexp.MustCompile(`\[([^\]]+)\]\(([^)]+)\)`)
	codeSpan = regexp.MustCompile("`[^`]+`")
	boldSpan = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	escape   = regexp.MustCompile("\x1b\\[[0-9;]*m")
)

// block renders the block at the head of lines, and returns what is behind it.
func (m *markdown) block(lines []string) []string {
	head := lines[0]
	switch {
	case strings.TrimSpace(head) == "":
		m.line("", "")
		return lines[1:]
	case strings.HasPrefix(head, "```"):
		end := 1
		for ; end < len(lines) && !strings.HasPrefix(lines[end], "```"); end++ {
			m.line("    ", m.paint("36", lines[end]))
		}
		return lines[min(end+1, len(lines)):]
	case strings.HasPrefix(head, "#"):
		title := strings.TrimSpace(strings.TrimLeft(head, "#"))
		if strings.HasPrefix(head, "# ") {
			m.line("", m.paint("1", strings.ToUpper(title)))
		} else {
			m.line("", m.paint("1", title))
		}
		return lines[1:]
	case strings.HasPrefix(head, "|"):
		n := countWhile(lines, func(l string) bool { return strings.HasPrefix(l, "|") })
		m.table(lines[:n])
		return lines[n:]
	}
	n := 1 + countWhile(lines[1:], func(l string) bool { return !startsBlock(l) })
	text, first, rest := strings.Join(lines[:n], " "), "", ""
	if mark := listItem.FindString(head); mark != "" {
		first, rest = mark, strings.Repeat(" ", len(mark))
		text = strings.TrimPrefix(text, mark)
	}
	for i, l := range wrap(m.inline(strings.Join(strings.Fields(text), " ")), m.width-len(first)) {
		m.line(map[bool]string{true: first, false: rest}[i == 0], l)
	}
	return lines[n:]
}

func startsBlock(l string) bool {
	return strings.TrimSpace(l) == "" || listItem.MatchString(l) || strings.HasPrefix(l, "|") ||
		strings.HasPrefix(l, "#") || strings.HasPrefix(l, "```")
}

func countWhile(lines []string, ok func(string) bool) int {
	if n := slices.IndexFunc(lines, func(l string) bool { return !ok(l) }); n >= 0 {
		return n
	}
	return len(lines)
}

func (m *markdown) line(indent, text string) {
	m.b.WriteString(strings.TrimRight(indent+text, " ") + "\n")
}

func (m *markdown) paint(code, text string) string {
	if !m.style || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// inline renders code, bold and links. Without styles code keeps its quotes: a
// word of code among words must be told from them.
func (m *markdown) inline(text string) string {
	text = link.ReplaceAllStringFunc(text, func(l string) string {
		parts := link.FindStringSubmatch(l)
		return linkText(parts[1], parts[2])
	})
	text = boldSpan.ReplaceAllStringFunc(text, func(s string) string { return m.paint("1", strings.Trim(s, "*")) })
	if !m.style {
		return text
	}
	return codeSpan.ReplaceAllStringFunc(text, func(s string) string { return m.paint("36", strings.Trim(s, "`")) })
}

// linkText says where a link leads: another page is a command here.
func linkText(text, target string) string {
	name, isPage := strings.CutSuffix(target, ".md")
	switch {
	case isPage && !strings.Contains(name, "/"):
		return "`exocomp docs " + name + "`"
	case text == target || strings.HasPrefix(target, "#"):
		return text
	}
	return text + " (" + target + ")"
}

// wrap breaks text between words, into lines that show at most width runes.
func wrap(text string, width int) []string {
	var out []string
	line, used := "", 0
	for word := range strings.SplitSeq(text, " ") {
		n := visible(word)
		if line != "" && used+1+n > width {
			out, line, used = append(out, line), "", 0
		}
		if line != "" {
			line, used = line+" ", used+1
		}
		line, used = line+word, used+n
	}
	return append(out, line)
}

// visible is how many columns text takes.
func visible(text string) int { return utf8.RuneCountInString(escape.ReplaceAllString(text, "")) }

// table renders rows of cells, broken within the columns where they are too wide.
func (m *markdown) table(lines []string) {
	var rows [][]string
	for i, l := range lines {
		if i == 1 {
			continue // the rule under the head
		}
		cells := splitRow(l)
		for j, cell := range cells {
			cells[j] = m.inline(cell)
			if i == 0 {
				cells[j] = m.paint("1", strings.ToUpper(cell))
			}
		}
		if strings.Join(cells, "") != "" {
			rows = append(rows, cells)
		}
	}
	widths := columnWidths(rows, m.width)
	for _, row := range rows {
		m.row(row, widths)
	}
}

func (m *markdown) row(cells []string, widths []int) {
	var columns [][]string
	height := 0
	for i, cell := range cells[:min(len(cells), len(widths))] {
		columns = append(columns, wrap(cell, widths[i]))
		height = max(height, len(columns[i]))
	}
	for y := range height {
		var line strings.Builder
		for i, col := range columns {
			cell := ""
			if y < len(col) {
				cell = col[y]
			}
			line.WriteString(cell + strings.Repeat(" ", max(0, widths[i]-visible(cell))+2))
		}
		m.line("", line.String())
	}
}

// splitRow splits at bars that are neither escaped nor in code.
func splitRow(l string) []string {
	var cells []string
	var cell strings.Builder
	code := false
	l = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(l), "|"), "|")
	for i, r := range l {
		switch {
		case r == '`':
			code = !code
			cell.WriteRune(r)
		case r == '\\' && i+1 < len(l) && l[i+1] == '|':
		case r == '|' && !code && (i == 0 || l[i-1] != '\\'):
			cells = append(cells, strings.TrimSpace(cell.String()))
			cell.Reset()
		default:
			cell.WriteRune(r)
		}
	}
	return append(cells, strings.TrimSpace(cell.String()))
}

// columnWidths shares the width: the widest column gives way first, and none gets
// narrower than its longest word.
func columnWidths(rows [][]string, width int) []int {
	var want, least []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(want) {
				want, least = append(want, 0), append(least, 0)
			}
			want[i] = max(want[i], visible(cell))
			for word := range strings.SplitSeq(cell, " ") {
				least[i] = max(least[i], visible(word))
			}
		}
	}
	for {
		sum, widest := 2*(len(want)-1), -1
		for i, w := range want {
			sum += w
			if w > least[i] && (widest < 0 || w > want[widest]) {
				widest = i
			}
		}
		if sum <= width || widest < 0 {
			return want
		}
		want[widest]--
	}
}

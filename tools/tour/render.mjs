// render.mjs FILE.txt...: draws each session as a terminal picture, FILE.svg. In a session a line
// that begins with "$ " is a command, and the lines below it are its output.
import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { basename } from 'node:path'
import svgTerm from 'svg-term'

const columns = 114

const paint = (code, text) => `\x1b[${code}m${text}\x1b[0m`
const [bold, cyan, red, green, yellow] = ['1', '36', '1;31', '32', '1;33']

// command returns the coloured line of a command: prompt, command, comment.
function command (line) {
  const [, text, comment] = /^\$ (.*?)(\s+#.*)?$/.exec(line)
  return paint(green, '$') + ' ' + paint(bold, text) + paint(cyan, comment ?? '')
}

// output returns a coloured line of output: the states of doctor, remedies and errors.
function output (line) {
  return line
    .replace(/^(Error:|error)(?= )/, text => paint(red, text))
    .replace(/^warning(?= )/, text => paint(yellow, text))
    .replace(/^ok(?= )/, text => paint(green, text))
    .replace(/remedy:/, text => paint(yellow, text))
}

// fold returns a line of output in parts that the terminal has room for: words are kept, and the
// parts begin where the last column of the line does.
function fold (line) {
  if (line.length <= columns) return [line]
  const indent = /^(?:.*? {3,})*/.exec(line)[0].length || 4
  let end = line.lastIndexOf(' ', columns)
  if (end <= indent) end = columns
  return [line.slice(0, end), ...fold(' '.repeat(indent) + line.slice(end).trimStart())]
}

// screen returns the lines of a session as the terminal shows them: folded, or cut below "less -S".
function screen (session) {
  const shown = []
  let cut = false
  for (const line of session.trimEnd().split('\n')) {
    if (line.startsWith('$ ')) {
      if (shown.length > 0) shown.push('')
      cut = line.endsWith('less -S')
      shown.push(command(line))
    } else if (cut) {
      shown.push(output(line.slice(0, columns)))
    } else {
      shown.push(...fold(line).map(output))
    }
  }
  return shown
}

for (const file of process.argv.slice(2)) {
  const session = readFileSync(file)
  const lines = screen(session.toString())
  const header = { version: 2, width: columns + 1, height: lines.length + 1 }
  const cast = `${JSON.stringify(header)}\n${JSON.stringify([1, 'o', lines.join('\r\n')])}\n`
  const picture = svgTerm.render(cast, { at: 2000, cursor: false, window: true, paddingX: 1, paddingY: 1 })
  const source = `${basename(file)} ${createHash('sha256').update(session).digest('hex')}`
  writeFileSync(file.replace(/\.txt$/, '.svg'), `<!-- ${source} -->\n${picture}\n`)
}

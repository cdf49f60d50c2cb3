// page.mjs PANELS.json PAGE.html: writes a page that shows the panels of the dashboard, with the
// titles, units, thresholds and the layout of its JSON. It prints the size of the page in pixels.
import { readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const [, , recording, page] = process.argv
const here = dirname(fileURLToPath(import.meta.url))
const uplot = dirname(createRequire(import.meta.url).resolve('uplot/package.json'))
const read = path => readFileSync(path, 'utf8')
const data = JSON.parse(read(recording))

// Grafana's grid: 24 columns, rows of 30 pixels with gaps of 8.
const [width, row, gap] = [1400, 30, 8]
const bottom = Math.max(...data.panels.map(p => p.gridPos.y + p.gridPos.h))
const height = 48 + bottom * (row + gap)

writeFileSync(page, `<!DOCTYPE html>
<meta charset="utf-8">
<title>${data.title}</title>
<style>${read(join(uplot, 'dist', 'uPlot.min.css'))}${read(join(here, 'page.css'))}</style>
<body style="width: ${width}px; height: ${height}px">
<h1>${data.title}</h1>
<main></main>
<script>${read(join(uplot, 'dist', 'uPlot.iife.min.js'))}</script>
<script>const recording = ${JSON.stringify(data)}, grid = { width: ${width}, row: ${row}, gap: ${gap} }</script>
<script>${read(join(here, 'draw.js'))}</script>
`)
console.log(`${width},${height}`)

/* global recording, grid, uPlot */
// draw.js draws the panels of the recording into the page, as Grafana lays them out.

const colors = ['#56a64b', '#e0b400', '#3274d9', '#e02f44', '#a352cc', '#fa6400', '#2b908f', '#b877d9', '#705da0', '#8f3bb8', '#c15c17', '#37872d']
const named = { green: '#37872d', red: '#c4162a', orange: '#fa6400', blue: '#1f60c4' }

// pale returns a color mixed with white: areas of a stack lie on each other, so they are opaque.
function pale (color) {
  const mixed = [1, 3, 5].map(i => Math.round(255 - (255 - parseInt(color.slice(i, i + 2), 16)) * 0.35))
  return `rgb(${mixed})`
}

// format writes a value of a panel in its unit.
function format (value, unit, decimals) {
  const short = v => decimals === undefined ? String(Number(v.toPrecision(3))) : v.toFixed(decimals)
  switch (unit) {
    case 's':
      if (value !== 0 && value < 0.001) return `${short(value * 1e6)} µs`
      if (value !== 0 && value < 1) return `${short(value * 1000)} ms`
      return value < 60 ? `${short(value)} s` : `${short(value / 60)} min`
    case 'bytes': return value === 0 ? '0 B' : `${short(value / 2 ** 20)} MiB`
    case 'ops': return `${short(value)} ops/s`
    case 'reqps': return `${short(value)} req/s`
    default: return short(value)
  }
}

function element (parent, tag, className, text) {
  const e = document.createElement(tag)
  e.className = className
  if (text !== undefined) e.textContent = text
  return parent.appendChild(e)
}

// place lays a panel out on the grid.
function place (box, { x, y, w, h }) {
  const column = (grid.width - grid.gap) / 24
  box.style.left = `${grid.gap + x * column}px`
  box.style.top = `${y * (grid.row + grid.gap)}px`
  box.style.width = `${w * column - grid.gap}px`
  box.style.height = `${h * (grid.row + grid.gap) - grid.gap}px`
}

// stat shows the last value of a panel on the color of its threshold.
function stat (box, panel) {
  const { unit, decimals, thresholds } = panel.fieldConfig.defaults
  const values = (panel.lines?.[0]?.points ?? []).map(p => p[1]).filter(v => v !== null)
  const last = values.at(-1)
  const step = thresholds.steps.findLast(s => s.value === null || last >= s.value)
  box.style.background = last === undefined ? '#8e8e8e' : named[step.color]
  element(box, 'p', '', last === undefined ? 'No data' : format(last, unit, decimals))
}

// columns returns the points of all lines at the same times, with null where a line has none.
function columns (lines) {
  const times = []
  for (let at = recording.start; at <= recording.end; at += recording.step) times.push(at)
  return [times, ...lines.map(line => {
    const values = new Map(line.points.map(([at, value]) => [at, value]))
    return times.map(at => values.get(at) ?? null)
  })]
}

// stack adds to each line the lines before it.
function stack ([times, ...lines]) {
  const sum = times.map(() => 0)
  return [times, ...lines.map(line => line.map((value, i) => value === null ? null : (sum[i] += value)))]
}

// increments returns the distances that the marks of an axis may have; undefined for any.
function increments (unit, decimals) {
  if (unit === 'bytes') return [1, 2, 4, 8, 16, 32, 64].map(n => n * 2 ** 20)
  if (decimals === 0) return [1, 2, 5, 10, 20, 50, 100, 200, 500]
}

// minutes returns the times of whole minutes since the start.
function minutes () {
  const all = []
  for (let at = recording.start; at <= recording.end; at += 60) all.push(at)
  return all
}

function timeseries (box, panel) {
  const { unit, decimals, custom, max, noValue } = panel.fieldConfig.defaults
  const lines = panel.lines ?? []
  const stacked = custom?.stacking?.mode === 'normal'
  const chart = element(box, 'div', '')
  if (lines.length === 0) element(box, 'div', 'empty', noValue ?? 'No data')
  const legend = element(box, 'p', 'legend')
  lines.forEach((line, i) => {
    const entry = element(legend, 'span', '')
    element(entry, 'i', '').style.background = colors[i % colors.length]
    entry.append(line.name)
  })
  const points = stacked ? stack(columns(lines)) : columns(lines)
  // uPlot draws the series in order: the highest of a stack first.
  const order = lines.map((_, i) => i)
  if (stacked) order.reverse()
  const highest = Math.max(0, ...points.slice(1).flat())
  const size = { width: box.clientWidth, height: box.clientHeight - 22 - legend.offsetHeight - 4 }
  const grey = { stroke: '#e4e7eb', width: 1 }
  return new uPlot({
    ...size,
    legend: { show: false },
    cursor: { show: false },
    scales: { y: { range: () => [0, max ?? (highest > 0 ? highest * 1.1 : 1)] } },
    axes: [
      { grid: grey, ticks: grey, font: '11px sans-serif', size: 24, splits: minutes, values: (_, at) => at.map(s => `${(s - recording.start) / 60} min`) },
      { grid: grey, ticks: grey, font: '11px sans-serif', size: 72, incrs: increments(unit, decimals), values: (_, at) => at.map(v => format(v, unit)) }
    ],
    series: [{}, ...order.map(i => ({
      stroke: colors[i % colors.length],
      width: 1.5,
      points: { show: false },
      fill: stacked ? pale(colors[i % colors.length]) : undefined
    }))]
  }, [points[0], ...order.map(i => points[i + 1])], chart)
}

const main = document.querySelector('main')
for (const panel of recording.panels) {
  const box = element(main, 'div', `panel ${panel.type}`)
  place(box, panel.gridPos)
  if (panel.type === 'row') {
    box.textContent = panel.title
    continue
  }
  element(box, 'h2', '', panel.title)
  if (panel.type === 'stat') stat(box, panel)
  else timeseries(box, panel)
}

// @ts-check
// The OpenAPI document as a page. All of it is text: nothing of the document becomes markup.

/** @typedef {{$ref?: string, type?: string, description?: string, properties?: Record<string, Schema>, required?: string[],
 *  items?: Schema, prefixItems?: Schema[], anyOf?: Schema[], enum?: any[], const?: any, default?: any, examples?: any[], minimum?: number,
 *  maximum?: number, maxLength?: number, additionalProperties?: Schema | boolean, contentMediaType?: string}} Schema */
/** @typedef {Record<string, {schema?: Schema}>} Content */
/** @typedef {{tags: string[], description: string, requestBody?: {content: Content},
 *  responses: Record<string, {description: string, content?: Content}>}} Operation */

const SENTENCE = 'A man rides a horse.';
const FORM = 'multipart/form-data';

/** @type {Record<string, Schema>} */
let schemas = {};

/** @param {string} tag @param {Record<string, string>} attributes @param {(Node | string)[]} content */
function make(tag, attributes = {}, ...content) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...content);
  return node;
}

/** @param {string} id @returns {any} */
const byId = (id) => document.getElementById(id);

/** @param {string} text @returns {(Node | string)[]} what stands between backticks is code */
const prose = (text) => text.split('`').map((part, place) => (place % 2 ? make('code', {}, part) : part));

/** @param {Schema} schema @returns {Schema} */
const resolved = (schema) => (schema.$ref ? schemas[nameOf(schema.$ref)] : schema);

/** @param {string} reference */
const nameOf = (reference) => reference.slice(reference.lastIndexOf('/') + 1);

/** @param {Schema} schema @returns {(Node | string)[]} */
function typeOf(schema) {
  if (schema.$ref) return [make('a', { href: `#${nameOf(schema.$ref)}` }, nameOf(schema.$ref))];
  if (schema.anyOf) return schema.anyOf.flatMap((one, place) => [...(place ? [' or '] : []), ...typeOf(one)]);
  if (schema.prefixItems) return ['[', ...schema.prefixItems.flatMap((one, place) => [...(place ? [', '] : []), ...typeOf(one)]), ']'];
  if (schema.type === 'array') return ['list of ', ...typeOf(schema.items ?? {})];
  if (schema.contentMediaType) return ['file'];
  if (typeof schema.additionalProperties === 'object') return ['object of ', ...typeOf(schema.additionalProperties)];
  return [schema.type ?? 'any'];
}

/** @param {Schema} schema @returns {string} */
function bounds(schema) {
  const said = [];
  const choices = schema.enum ?? schema.anyOf?.find((one) => one.enum)?.enum;
  if (choices) said.push(`one of ${choices.filter((one) => one !== null).join(', ')}`);
  const numbers = [schema, ...(schema.anyOf ?? [])].find((one) => one.minimum !== undefined || one.maximum !== undefined);
  if (numbers?.minimum !== undefined) said.push(`at least ${numbers.minimum}`);
  if (numbers?.maximum !== undefined) said.push(`at most ${numbers.maximum}`);
  const usual = schema.default;
  if (usual !== undefined && usual !== null && usual !== '' && JSON.stringify(usual) !== '{}' && JSON.stringify(usual) !== '[]') {
    said.push(`default ${usual}`);
  }
  return said.join('; ');
}

/** @param {Schema} schema */
function fieldsOf(schema) {
  const rows = Object.entries(schema.properties ?? {}).map(([name, field]) => {
    const needed = schema.required?.includes(name) ? [make('span', { class: 'needed' }, 'required')] : [];
    const said = [field.description, bounds(field)].filter(Boolean).join('; ');
    return make('tr', {},
      make('th', { scope: 'row' }, make('code', {}, name), ...needed),
      make('td', { class: 'type' }, ...typeOf(field)),
      make('td', {}, ...prose(said)));
  });
  return make('table', { class: 'fields' }, make('tbody', {}, ...rows));
}

/** @param {string} name @returns {any} a value to show */
function example(name) {
  const { source, target } = schemas.LibreRequest.properties ?? {};
  const from = source.enum?.[0];
  const values = { source: from, target: target.enum?.find((one) => one !== from), texts: [SENTENCE], translations: ['...'] };
  return values[/** @type {keyof values} */ (name)] ?? SENTENCE;
}

/** @param {string} method @param {string} path @param {Content} content */
function curl(method, path, content) {
  const address = `curl ${new URL(path, location.origin)}`;
  const quoted = (/** @type {string} */ text) => `'${text.replaceAll("'", "'\\''")}'`;
  if (method === 'get') return address;
  const json = content['application/json'];
  const body = resolved((json ?? content[FORM]).schema ?? {});
  const given = Object.entries(body.properties ?? {}).filter(([name]) => body.required?.includes(name));
  if (json) {
    const sent = JSON.stringify(Object.fromEntries(given.map(([name]) => [name, example(name)])));
    return `${address} -H ${quoted('Content-Type: application/json')} -d ${quoted(sent)}`;
  }
  const parts = given.map(([name, field]) => `-F ${name}=${field.contentMediaType ? '@letter.docx' : example(name)}`);
  return [address, ...parts].join(' ');
}

/** @param {string} id @param {Node[]} title @param {Node[]} content */
function folded(id, title, content) {
  return make('details', { class: 'folded', id }, make('summary', {}, ...title), make('div', {}, ...content));
}

/** @param {string} method @param {string} path @param {Operation} operation */
function endpoint(method, path, operation) {
  const [first, ...others] = operation.description.split('\n\n');
  const content = others.map((paragraph) => make('p', {}, ...prose(paragraph)));
  const taken = operation.requestBody?.content ?? {};
  content.push(make('h3', {}, 'Example'), make('pre', {}, curl(method, path, taken)));
  const kinds = Object.keys(taken);
  if (kinds.length) {
    content.push(make('h3', {}, 'Request'), make('p', { class: 'muted' }, kinds.join(', ')));
    content.push(fieldsOf(resolved(taken[kinds[0]].schema ?? {})));
  }
  const rows = Object.entries(operation.responses).sort().map(([status, answer]) => make('tr', {},
    make('th', { scope: 'row' }, make('code', {}, status)),
    make('td', { class: 'type' }, ...answered(answer.content ?? {})),
    make('td', {}, status === '200' ? 'done' : answer.description)));
  content.push(make('h3', {}, 'Answers'), make('table', { class: 'fields' }, make('tbody', {}, ...rows)));
  const title = [make('span', { class: `method ${method}` }, method.toUpperCase()), make('code', {}, path), make('span', { class: 'muted' }, ...prose(first))];
  return folded(`${method}${path.replaceAll('/', '-')}`, title, content);
}

/** @param {Content} content @returns {(Node | string)[]} */
function answered(content) {
  return Object.entries(content).flatMap(([kind, { schema }], place) => [
    ...(place ? [' or '] : []), ...(schema && Object.keys(schema).length ? typeOf(schema) : [kind]),
  ]);
}

/** @param {{info: {description: string, version: string}, paths: Record<string, Record<string, Operation>>,
 *  components: {schemas: Record<string, Schema>}}} document */
function show({ info, paths, components }) {
  schemas = components.schemas;
  byId('about').textContent = `${info.description} Version ${info.version}.`;
  const all = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ tag: operation.tags[0], node: endpoint(method, path, operation) })));
  for (const tag of new Set(all.map((one) => one.tag))) {
    const own = all.filter((one) => one.tag === tag).map((one) => one.node);
    byId('endpoints').append(make('section', {}, make('h2', {}, tag), ...own));
  }
  for (const [name, schema] of Object.entries(schemas).sort()) {
    const title = [make('code', {}, name), make('span', { class: 'muted' }, ...prose(schema.description ?? ''))];
    byId('objects').append(folded(name, title, [fieldsOf(schema)]));
  }
  byId('objects').hidden = false;
}

/** Open what the address names. */
function openNamed() {
  const named = byId(location.hash.slice(1));
  if (!(named instanceof HTMLDetailsElement)) return;
  named.open = true;
  named.scrollIntoView();
}

async function start() {
  byId('fold').addEventListener('click', () => {
    const open = byId('fold').getAttribute('aria-pressed') !== 'true';
    byId('fold').setAttribute('aria-pressed', String(open));
    byId('fold').textContent = open ? 'Close all' : 'Open all';
    for (const one of document.querySelectorAll('details')) one.open = open;
  });
  addEventListener('hashchange', openNamed);
  try {
    show(await (await fetch('openapi.json')).json());
    openNamed();
  } catch {
    byId('problem').textContent = 'The server does not answer; is it still running?';
    byId('problem').hidden = false;
  }
}

start();

// The OpenAPI document as a page.
import { byId, make, showMessage } from './dom.js';
import { ask } from './api.js';

/**
 * @typedef {{$ref?: string, type?: string, description?: string, properties?: Record<string, Schema>,
 *            required?: string[], items?: Schema, prefixItems?: Schema[], anyOf?: Schema[], enum?: any[], default?: any,
 *            minimum?: number, maximum?: number, additionalProperties?: Schema | boolean,
 *            contentMediaType?: string}} Schema
 */
/** @typedef {Record<string, {schema?: Schema}>} Content */
/**
 * @typedef {{tags: string[], description: string, requestBody?: {content: Content},
 *            responses: Record<string, {description: string, content?: Content}>}} Operation
 */
/**
 * @typedef {{info: {description: string, version: string}, paths: Record<string, Record<string, Operation>>,
 *            components: {schemas: Record<string, Schema>}}} ApiDocument
 */
/** @typedef {(Node | string)[]} Nodes */

const SENTENCE = 'A man rides a horse.';
const FORM = 'multipart/form-data';

/** @type {Record<string, Schema>} */
let schemas = {};

/** @param {string} text with code between backticks @returns {Nodes} */
function proseNodes(text) {
  return text.split('`').map((part, i) => (i % 2 ? make('code', {}, part) : part));
}

/** @param {Nodes[]} items @param {string} separator @returns {Nodes} */
function joinNodes(items, separator) {
  return items.flatMap((item, i) => (i ? [separator, ...item] : item));
}

/** @param {string} reference */
function nameOf(reference) {
  return reference.slice(reference.lastIndexOf('/') + 1);
}

/** @param {Schema} [schema] @returns {Schema} */
function resolve(schema = {}) {
  return schema.$ref ? schemas[nameOf(schema.$ref)] : schema;
}

/** @param {Schema} schema @returns {Nodes} */
function typeNodes(schema) {
  if (schema.$ref) return [make('a', { href: `#${nameOf(schema.$ref)}` }, nameOf(schema.$ref))];
  if (schema.anyOf) return joinNodes(schema.anyOf.map(typeNodes), ' or ');
  if (schema.prefixItems) return ['[', ...joinNodes(schema.prefixItems.map(typeNodes), ', '), ']'];
  if (schema.type === 'array') return ['list of ', ...typeNodes(schema.items ?? {})];
  if (schema.contentMediaType) return ['file'];
  if (typeof schema.additionalProperties === 'object') return ['object of ', ...typeNodes(schema.additionalProperties)];
  return [schema.type ?? 'any'];
}

/** @param {Schema} schema @returns {string} */
function describeLimits(schema) {
  const limits = [];
  const choices = schema.enum ?? schema.anyOf?.find((each) => each.enum)?.enum;
  if (choices) limits.push(`one of ${choices.filter((each) => each !== null).join(', ')}`);
  const { minimum, maximum } = [schema, ...(schema.anyOf ?? [])].find((each) => 'minimum' in each || 'maximum' in each) ?? {};
  if (minimum !== undefined) limits.push(`at least ${minimum}`);
  if (maximum !== undefined) limits.push(`at most ${maximum}`);
  const isEmpty = ['null', '""', '{}', '[]'].includes(JSON.stringify(schema.default ?? null));
  if (!isEmpty) limits.push(`default ${schema.default}`);
  return limits.join('; ');
}

/** @param {Schema} schema */
function fieldTable(schema) {
  const rows = Object.entries(schema.properties ?? {}).map(([name, field]) => {
    const isRequired = schema.required?.includes(name);
    const description = [field.description, describeLimits(field)].filter(Boolean).join('; ');
    return make('tr', {},
      make('th', { scope: 'row' }, make('code', {}, name), ...(isRequired ? [make('span', { class: 'needed' }, 'required')] : [])),
      make('td', { class: 'type' }, ...typeNodes(field)),
      make('td', {}, ...proseNodes(description)));
  });
  return make('table', { class: 'fields' }, make('tbody', {}, ...rows));
}

/** @param {string} field @returns {any} a value to show */
function exampleValue(field) {
  const { source, target } = schemas.LibreRequest.properties ?? {};
  const from = source.enum?.[0];
  /** @type {Record<string, any>} */
  const values = { source: from, target: target.enum?.find((each) => each !== from), texts: [SENTENCE], translations: ['...'] };
  return values[field] ?? SENTENCE;
}

/** @param {string} method @param {string} path @param {Content} content @returns {string} a command line */
function curlExample(method, path, content) {
  const command = `curl ${new URL(path, location.origin)}`;
  if (method === 'get') return command;
  const quote = (/** @type {string} */ text) => `'${text.replaceAll("'", "'\\''")}'`;
  const json = content['application/json'];
  const body = resolve((json ?? content[FORM]).schema);
  const required = Object.entries(body.properties ?? {}).filter(([name]) => body.required?.includes(name));
  if (json) {
    const sent = JSON.stringify(Object.fromEntries(required.map(([name]) => [name, exampleValue(name)])));
    return `${command} -H ${quote('Content-Type: application/json')} -d ${quote(sent)}`;
  }
  const parts = required.map(([name, field]) => `-F ${name}=${field.contentMediaType ? '@letter.docx' : exampleValue(name)}`);
  return [command, ...parts].join(' ');
}

/** @param {string} id @param {Node[]} title @param {Node[]} content */
function foldable(id, title, content) {
  return make('details', { class: 'folded', id }, make('summary', {}, ...title), make('div', {}, ...content));
}

/** @param {string} method @param {string} path @param {Operation} operation */
function endpointNode(method, path, operation) {
  const [first, ...others] = operation.description.split('\n\n');
  /** @type {Node[]} */
  const content = others.map((paragraph) => make('p', {}, ...proseNodes(paragraph)));
  const accepted = operation.requestBody?.content ?? {};
  content.push(make('h3', {}, 'Example'), make('pre', {}, curlExample(method, path, accepted)));
  const kinds = Object.keys(accepted);
  if (kinds.length) {
    content.push(make('h3', {}, 'Request'), make('p', { class: 'muted' }, kinds.join(', ')));
    content.push(fieldTable(resolve(accepted[kinds[0]].schema)));
  }
  const rows = Object.entries(operation.responses).sort().map(([status, response]) => make('tr', {},
    make('th', { scope: 'row' }, make('code', {}, status)),
    make('td', { class: 'type' }, ...contentNodes(response.content ?? {})),
    make('td', {}, status === '200' ? 'success' : response.description)));
  content.push(make('h3', {}, 'Responses'), make('table', { class: 'fields' }, make('tbody', {}, ...rows)));
  const title = [
    make('span', { class: `method ${method}` }, method.toUpperCase()),
    make('code', {}, path),
    make('span', { class: 'muted' }, ...proseNodes(first)),
  ];
  return foldable(`${method}${path.replaceAll('/', '-')}`, title, content);
}

/** @param {Content} content @returns {Nodes} */
function contentNodes(content) {
  const items = Object.entries(content).map(([kind, { schema }]) =>
    (schema && Object.keys(schema).length ? typeNodes(schema) : [kind]));
  return joinNodes(items, ' or ');
}

/** @param {ApiDocument} document */
function showDocument({ info, paths, components }) {
  schemas = components.schemas;
  byId('about').textContent = `${info.description} Version ${info.version}.`;
  const all = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ tag: operation.tags[0], node: endpointNode(method, path, operation) })));
  for (const tag of new Set(all.map((each) => each.tag))) {
    const nodes = all.filter((each) => each.tag === tag).map((each) => each.node);
    byId('endpoints').append(make('section', {}, make('h2', {}, tag), ...nodes));
  }
  for (const [name, schema] of Object.entries(schemas).sort()) {
    const title = [make('code', {}, name), make('span', { class: 'muted' }, ...proseNodes(schema.description ?? ''))];
    byId('objects').append(foldable(name, title, [fieldTable(schema)]));
  }
  byId('objects').hidden = false;
}

/** Opens the element that the address names. */
function openNamed() {
  const named = document.getElementById(location.hash.slice(1));
  if (!(named instanceof HTMLDetailsElement)) return;
  named.open = true;
  named.scrollIntoView();
}

async function start() {
  const fold = byId('fold');
  fold.addEventListener('click', () => {
    const open = fold.getAttribute('aria-pressed') !== 'true';
    fold.setAttribute('aria-pressed', String(open));
    fold.textContent = open ? 'Collapse all' : 'Expand all';
    for (const details of document.querySelectorAll('details')) details.open = open;
  });
  addEventListener('hashchange', openNamed);
  try {
    showDocument(await ask('openapi.json'));
    openNamed();
  } catch (error) {
    showMessage(byId('problem'), /** @type {Error} */ (error).message);
  }
}

start();

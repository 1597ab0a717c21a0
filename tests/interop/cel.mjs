// The expressions of admission policies, checked as the API server does when it stores one: each has a
// type, and what a list holds has one type. Then evaluated.
//
// stdin, a line each: {"declared": {name: type}, "variables": [{"name", "expression"}], "expressions": [text],
//   "values": {name: value} or null}
// stdout, a line each: {"errors": [text], "types": [type], "values": [value]}, one type and value for each
// expression; no values with an error, or where none were given.
import { createInterface } from 'node:readline';
import { Environment } from '@marcbachmann/cel-js';

// In a type of an empty map nothing is known of its members.
const known = (type) => type.replace(/\b[A-Z]\b/g, 'dyn');

// Whole numbers of JSON are integers.
function integers(value) {
  if (Number.isInteger(value)) return BigInt(value);
  if (Array.isArray(value)) return value.map(integers);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, integers(member)]));
}

const plain = (_, value) => (typeof value === 'bigint' ? Number(value) : value instanceof Map ? Object.fromEntries(value) : value);

// The `variables` of a policy know those before them.
function environment(declared, variables) {
  const made = new Environment({ homogeneousAggregateLiterals: true });
  for (const [name, type] of Object.entries(declared)) made.registerVariable(name, type);
  if (Object.keys(variables).length > 0) made.registerVariable({ name: 'variables', schema: variables });
  return made;
}

function compiled(task) {
  const errors = [];
  const types = {};
  const steps = [];
  const check = (expression, where) => {
    const made = environment(task.declared, types);
    const found = made.check(expression);
    if (!found.valid) {
      errors.push(`${where}: ${found.error.message.split('\n')[0]}`);
      return 'dyn';
    }
    steps.push(made.parse(expression));
    return known(found.type);
  };
  for (const { name, expression } of task.variables) types[name] = check(expression, `variables.${name}`);
  const found = task.expressions.map((expression) => check(expression, expression));
  return { errors, types: found, steps };
}

function evaluated(task, steps) {
  const variables = {};
  const values = { ...integers(task.values), variables };
  task.variables.forEach(({ name }, number) => { variables[name] = steps[number](values); });
  return steps.slice(task.variables.length).map((step) => step(values));
}

for await (const line of createInterface({ input: process.stdin })) {
  const task = JSON.parse(line);
  const { errors, types, steps } = compiled(task);
  const values = task.values && errors.length === 0 ? evaluated(task, steps) : [];
  process.stdout.write(`${JSON.stringify({ errors, types, values }, plain)}\n`);
}

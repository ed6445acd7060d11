/** Create elements, and update the page without losing focus, selection or scroll positions. */

const SVG = "http://www.w3.org/2000/svg";
// Set by property, and by the reader, who opens and closes details.
const KEPT = ["style", "open"];
const LISTENERS = ["onclick", "onchange", "oninput", "onsubmit", "onkeydown", "ontoggle"];

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (LISTENERS.includes(name)) element[name] = value;
    // By property: the content security policy refuses style attributes.
    else if (name === "style") Object.assign(element.style, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(3).filter((each) => each !== null && each !== undefined && each !== false));
  return element;
}

/** Create an HTML element; null children and properties are left out. */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** Create an SVG element. */
export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** Make the content of an element the given nodes, keeping elements that are the same. */
export function show(parent, ...nodes) {
  const fresh = document.createElement("div");
  fill(fresh, {}, nodes);
  patchChildren(parent, fresh);
}

function isSame(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) return false;
  return old.nodeType !== Node.ELEMENT_NODE || old.dataset.key === fresh.dataset.key;
}

function patchChildren(parent, fresh) {
  let current = parent.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    let match = current;
    // What has a key is looked for among those that follow; what is passed over goes.
    if (match && !isSame(match, wanted) && wanted.dataset?.key) {
      while (match && !isSame(match, wanted)) match = match.nextSibling;
    }
    if (match && isSame(match, wanted)) {
      while (current !== match) {
        const next = current.nextSibling;
        current.remove();
        current = next;
      }
      patch(match, wanted);
      current = match.nextSibling;
    } else {
      parent.insertBefore(wanted, current);
    }
  }
  while (current) {
    const next = current.nextSibling;
    current.remove();
    current = next;
  }
}

function patch(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!KEPT.includes(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (!KEPT.includes(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText;
  for (const name of LISTENERS) old[name] = fresh[name];
  patchChildren(old, fresh);
}

// A person with a browser at the pages of an issuer.
export class Person {
  #cookies = new Map();

  // Follows redirects and fills in forms until the issuer sends the browser to a URL that begins with `end`.
  async visit(start, end) {
    let [url, form] = [new URL(start), undefined];
    for (let step = 0; step < 20; step += 1) {
      const response = await fetch(url, {
        method: form ? 'POST' : 'GET',
        body: form,
        redirect: 'manual',
        headers: { Cookie: [...this.#cookies].map((pair) => pair.join('=')).join('; ') },
      });
      for (const cookie of response.headers.getSetCookie()) {
        const [name, ...value] = cookie.split(';')[0].split('=');
        this.#cookies.set(name, value.join('='));
      }
      form = undefined;
      const location = response.headers.get('location');
      if (location) {
        url = new URL(location, url);
        if (url.href.startsWith(end)) return url;
        continue;
      }
      const html = await response.text();
      const action = html.match(/<form[^>]*action="([^"]*)"/);
      if (!action) throw new Error(`${response.status} ${html}`);
      url = new URL(action[1], url);
      const hidden = [...html.matchAll(/name="(\w+)" value="([^"]*)"/g)].map(([, name, value]) => [name, value]);
      form = new URLSearchParams({ ...Object.fromEntries(hidden), login: 'ada', password: 'enchantress', logout: 'yes' });
    }
    throw new Error('too many pages');
  }
}

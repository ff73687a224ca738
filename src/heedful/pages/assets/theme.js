/** @typedef {'system' | 'light' | 'dark'} Theme */

const DARK = '(prefers-color-scheme: dark)';

/** @returns {Theme} */
export function currentTheme() {
  const { theme } = document.documentElement.dataset;
  return theme === 'light' || theme === 'dark' ? theme : 'system';
}

/** @param {Theme} theme */
export function setTheme(theme) {
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export function isDark() {
  return currentTheme() === 'system' ? matchMedia(DARK).matches : currentTheme() === 'dark';
}

// Paper is light, and so is the page while it is printed. These listeners come before those of the page.
let shown = currentTheme();
addEventListener('beforeprint', () => {
  shown = currentTheme();
  setTheme('light');
});
addEventListener('afterprint', () => setTheme(shown));

/** @param {() => void} listener called when the system changes between light and dark, and around printing */
export function onSystemThemeChange(listener) {
  matchMedia(DARK).addEventListener('change', listener);
  addEventListener('beforeprint', listener);
  addEventListener('afterprint', listener);
}

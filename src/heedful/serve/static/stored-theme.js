// Runs before anything is drawn, so that the page never flashes in the wrong colours. A module would run too late.
try {
  const theme = localStorage.getItem('theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch {
  // storage is blocked, so no theme was stored
}

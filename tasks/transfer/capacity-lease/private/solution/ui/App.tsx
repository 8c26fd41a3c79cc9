export function App() {
  return (
    <main>
      <h1>CapacityLease</h1>
      <p>Nothing here yet.</p>
    </main>
  );
}
